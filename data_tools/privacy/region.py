"""Administrative divisions of China as identity numbers name them (GB/T 2260).

Two digits of the province, then two of the prefecture: 01-20 and 51-70 cities, 21-50 regions,
prefectures and leagues, 90 what the province governs directly. Ranges take in divisions that were
renamed or dissolved: a number keeps the division of the year when it was given.
"""

_PREFECTURES = {
    "11": "00-02",
    "12": "00-02",
    "13": "01-11 21-33 90",
    "14": "01-11 21-29",
    "15": "01-09 21-30",
    "21": "01-14 21-29",
    "22": "01-08 21-26",
    "23": "01-12 21-33",
    "31": "00-02",
    "32": "01-13 20-29",
    "33": "01-11 21-30",
    "34": "01-18 21-30",
    "35": "01-09 21-30",
    "36": "01-11 21-30",
    "37": "01-17 20-30",
    "41": "01-17 21-30 90",
    "42": "01-13 20-32 90",
    "43": "01-13 21-33",
    "44": "01-20 21-33 51-53",
    "45": "01-14 21-33",
    "46": "00-04 90",
    "50": "00-03",
    "51": "01-20 21-38",
    "52": "01-06 21-29",
    "53": "01-09 21-36",
    "54": "01-06 21-28",
    "61": "01-10 21-29",
    "62": "01-12 21-30",
    "63": "01-03 21-28",
    "64": "01-05 21-22",
    "65": "01-05 21-43 90",
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
