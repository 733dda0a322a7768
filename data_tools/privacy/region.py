"""Administrative divisions of China as identity numbers name them (GB/T 2260).

Two digits of the province, then two of the prefecture: 01-20 and 51-70 cities, 21-50 regions,
prefectures and leagues, 90 what the province governs directly. Divisions since 1980, dissolved ones
too: a number keeps the division of the year when it was given. 83 is Taiwan's in residence permits.
"""

_PREFECTURES = {
    "11": "01-02",
    "12": "01-02",
    "13": "01-11 21-30 90",
    "14": "01-11 21-27 90",
    "15": "01-09 21-29",
    "21": "01-14 21-22 90",
    "22": "01-08 21-26 90",
    "23": "01-12 21-27 90",
    "31": "01-02",
    "32": "01-13 21-27 90",
    "33": "01-11 21-28 90",
    "34": "01-18 21-29",
    "35": "01-09 21-27 90",
    "36": "01-11 21-26",
    "37": "01-17 21-29 90",
    "41": "01-17 21-30 90",
    "42": "01-13 21-29 90",
    "43": "01-13 21-31 90",
    "44": "01-29 51-53 90",
    "45": "01-14 21-28",
    "46": "00-04 90",
    "50": "01-03",
    "51": "01-39 90",
    "52": "01-06 21-27",
    "53": "01-09 21-35",
    "54": "01-06 21-27",
    "61": "01-10 21-27",
    "62": "01-12 21-30",
    "63": "01-02 21-28",
    "64": "01-05 21-22",
    "65": "01-05 21-32 40-43 90",
    "71": "00",
    "81": "00",
    "82": "00",
    "83": "00",
}


def _expand() -> frozenset[str]:
    codes = set()
    for province, ranges in _PREFECTURES.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            codes.update(f"{province}{n:02d}" for n in range(int(first), int(last or first) + 1))
    return frozenset(codes)


_CODES = _expand()


def is_prefecture(code: str) -> bool:
    """Whether the first four digits of `code` name a division."""
    return code[:4] in _CODES


def is_registry(code: str) -> bool:
    """Whether six digits name a division that registers organisations: any, a province, China."""
    province = code[:2] in _PREFECTURES or code[:2] == "10"
    return is_prefecture(code) or (province and code[2:] == "0000")
