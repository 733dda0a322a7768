"""What private data is replaced by. No detector finds a placeholder."""

import hmac
import re

from data_tools.privacy.icd10 import category
from data_tools.privacy.shadow import shadow

MASK = "*"
_KEPT = {
    "email": re.compile(r"@|\.[A-Za-z]+$"),
    "mobile": re.compile(r"^(?:[(（]?(?:\+|00)?86[)）]?[^0-9]?)?1"),
    "landline": re.compile(r"^(?:[(（]?(?:\+|00)86[)）]?[^0-9]?)?[(（]?0"),
    "passport": re.compile(r"^[A-Z]"),
    "plate": re.compile(r"^."),
}
"""What says of which type a thing is, and not whose: 1 of a mobile number, the province of a
plate, the top-level domain of an address."""
_SET_APART = ("resident_id", "bank_card", "mobile", "landline", "plate")
"""Types written with separators or without; in an address they count."""
_LETTERS = 16
HASHED = re.compile(rf"<(?:[a-z0-9_]+):[a-p]{{{_LETTERS}}}>")


def mask(entity: str, original: str) -> str:
    """As long as the original, its separators in place, each letter and digit a `*`."""
    form, offsets = shadow(original)
    kept: set[int] = set()
    if entity in _KEPT:
        for match in _KEPT[entity].finditer(form):
            kept.update(offsets[i] for i in range(*match.span()))
    return "".join(c if i in kept or not c.isalnum() else MASK for i, c in enumerate(original))


def hashed(entity: str, original: str, key: bytes) -> str:
    """`<mobile:hbkdmfalpoceigjn>`: 64 bits of HMAC-SHA256 over the type and the thing, the same
    however that is set. No digits: nothing takes it for a number."""
    canonical = shadow(original).text.upper()
    if entity in _SET_APART:
        canonical = "".join(c for c in canonical if c.isalnum())
    if entity == "mobile":
        canonical = canonical[-11:]
    digest = hmac.digest(key, f"{entity}:{canonical}".encode(), "sha256").hex()
    letters = digest[:_LETTERS].translate(str.maketrans("0123456789abcdef", "abcdefghijklmnop"))
    return f"<{entity}:{letters}>"


def generalised(original: str) -> str:
    """An ICD-10 code without its decimals, in the width of the original."""
    return category(original)
