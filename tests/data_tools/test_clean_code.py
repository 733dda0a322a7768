"""Cleaning rules for source code."""

import base64
import random

import pytest

from data_tools.clean import RULES
from data_tools.document import Drop
from jaxlm.schema import parse
from tests.data_tools.cleaning import CODE, document, reason

RNG = random.Random(0)
BASE64 = f'DATA = """\n{base64.encodebytes(RNG.randbytes(2000)).decode()}"""\n'
HEX = "char data[] = {\n" + "  0x1f, 0xa2, 0x00, 0x7c,\n" * 60 + "};\n"
ESCAPES = 'DATA = b"' + "\\x1f\\xa2\\x00\\x7c" * 60 + '"\n'


@pytest.mark.parametrize("text", [BASE64, HEX, ESCAPES, HEX + CODE])
def test_encoded_data(text):
    found = reason("encoded_data", text)
    assert found and found.endswith(" of it encoded data, at most 0.5 allowed")


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        "https://example.org/" + "a/b-c_d." * 30,
        "ab 12 " * 3 + "text of words",
        "apple\nbanana\n" * 20,
    ],
)
def test_encoded_data_keeps(text):
    assert reason("encoded_data", text) is None


@pytest.mark.parametrize("meta", [{}, {"generated": "no"}, {"language": "python"}])
def test_generated_keeps(meta):
    kept = document(CODE, meta)
    assert RULES["generated"]()(kept) == kept


def test_generated():
    drop = RULES["generated"]()(document(CODE, {"generated": "yes"}))
    assert drop == Drop("generated", "marked as written by a program")


@pytest.mark.parametrize(
    ("params", "found", "detail"),
    [
        ({"deny": ("GPL-3.0-only",)}, "GPL-3.0-only", "GPL-3.0-only is denied"),
        ({"deny": ("GPL-3.0-only",)}, "MIT", None),
        ({"deny": ("GPL-3.0-only",)}, None, None),
        ({"deny": ("unknown",)}, None, "unknown is denied"),
        ({"allow": ("MIT", "unknown")}, "MIT", None),
        ({"allow": ("MIT", "unknown")}, None, None),
        ({"allow": ("MIT",)}, None, "unknown is not among those allowed"),
        ({"allow": ("MIT",)}, "Apache-2.0", "Apache-2.0 is not among those allowed"),
    ],
)
def test_license(params, found, detail):
    file = document(CODE, {"license": found} if found else {})
    result = parse(RULES["license"], params)(file)
    assert result == (Drop("license", detail) if detail else file)
