"""ICD-10 codes, diagnoses: where the text speaks of medicine, or the code has its decimals.

They look like many other things. Claimed first: their digits are no part of a phone or card number.
"""

import re
from collections.abc import Iterator

_CATEGORIES = """
A00-09 A15-28 A30-99 B00-09 B15-99 C00-97 D00-48 D50-89 E00-07 E10-16 E20-35 E40-46 E50-90 F00-99
G00-14 G20-26 G30-32 G35-37 G40-47 G50-64 G70-73 G80-99 H00-95 I00-02 I05-15 I20-52 I60-89 I95-99
J00-06 J09-22 J30-47 J60-70 J80-86 J90-99 K00-14 K20-31 K35-46 K50-67 K70-77 K80-93 L00-08 L10-14
L20-30 L40-45 L50-75 L80-99 M00-25 M30-36 M40-54 M60-99 N00-51 N60-64 N70-77 N80-99 O00-08 O10-16
O20-48 O60-75 O80-99 P00-15 P20-29 P35-39 P50-61 P70-78 P80-83 P90-96 Q00-07 Q10-18 Q20-28 Q30-56
Q60-99 R00-99 S00-99 T00-98 U00-49 U80-89 V01-99 W00-99 X00-99 Y00-98 Z00-13 Z20-65 Z70-99
"""
_CODE = re.compile(
    r"[A-Z][0-9]{2}(?<![0-9A-Za-z_.].{3})(\.[0-9Xx][0-9Xx]{0,2}[0-9A-Z]?(?:[Xx][0-9]{3})?)?"
    r"(?![0-9A-Za-z_])(?!\.[0-9])"
)
_MEDICAL = re.compile(
    r"诊断|病历|病案|病史|疾病|患者|病人|主诉|入院|出院|住院|门诊|临床|症状|并发症|综合征|确诊|ICD"
    r"|diagnos|patient|disease|syndrome|hospital|clinical|comorbid|admitted",
    re.IGNORECASE,
)
_NAMED = re.compile(r"(?:[病炎癌瘤症]|血压|骨折|梗死)\s?[:：(（]?$")
"""The name of a disease, right before its code."""
_COUNTED = re.compile(
    r"(?:[图表版第章节条款]|版本|附录|型号|fig(?:ure)?s?\.?|tables?|section|sec\.?|appendix|version|ver\.?"
    r"|release|oracle|model|page|§)\s*$",
    re.IGNORECASE,
)
_VERTEBRAE = frozenset({"T10", "T11", "T12"})
REACH = 40
"""Characters on either side of a code where the text must speak of medicine."""


def _expand() -> frozenset[str]:
    codes = set()
    for part in _CATEGORIES.split():
        first, last = part[1:].split("-")
        codes.update(f"{part[0]}{n:02d}" for n in range(int(first), int(last) + 1))
    return frozenset(codes)


_KNOWN = _expand()


def find(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Codes of a category that exists."""
    for match in _CODE.finditer(text, start, end):
        category = match[0][:3]
        if category not in _KNOWN:
            continue
        here, after = match.span()
        if match[1] and category[0] != "V":  # releases are numbered so: V71.0
            certain = not _COUNTED.search(text, max(0, here - 12), here)
        else:
            near = max(0, here - REACH)
            medical = _MEDICAL.search(text, near, after + REACH) or _NAMED.search(text, near, here)
            certain = medical and category not in _VERTEBRAE
        if certain:
            yield here, after


def category(code: str) -> str:
    """The three characters without decimals: E11 of E11.900."""
    return code[:3]
