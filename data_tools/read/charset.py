"""Charsets: bytes to text, by a name or by what the bytes themselves show."""

import codecs
import re
from collections.abc import Iterator

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from data_tools.read.record import Bad

CODECS = {"utf-8": "utf-8-sig", "gb18030": "gb18030", "gbk": "gb18030", "big5": "big5hkscs"}
"""Python's codec that reads all of a charset and of what is stored under its name; a UTF-8 byte
order mark is left out. Charsets that are not here have codecs of their own names."""

MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order mark -> codec; a longer mark before the one that it begins with."""

DECLARED = re.compile(
    rb"""<(?:meta\b[^>]*?\bcharset|\?xml[^>]*?\bencoding)\s*=\s*["']?([\w.:-]+)""", re.I
)
DECLARED_BYTES = 4096
BROKEN_SHARE = 0.05
"""Of a page's characters beyond ASCII, those that may be broken: crawled pages often have some."""


def decode(data: bytes, encoding: str) -> str:
    """Strictly decoded text; `encoding` as in `SourceConfig`.

    Raises UnicodeDecodeError; `undecodable` says it to a person.
    """
    return data.decode(CODECS.get(encoding) or detect(data) or "utf-8")


def detect(data: bytes) -> str | None:
    """Python's codec for bytes, the first of a text or all of it; None if they look like none."""
    for mark, codec in MARKS.items():
        if data.startswith(mark):
            return codec
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
        return "utf-8"
    except UnicodeDecodeError:
        return _codec(detect_encoding(data, html5_compatible=False))


def undecodable(place: str, encoding: str, error: UnicodeDecodeError) -> Bad:
    """The bad place where `decode` failed."""
    reason = "charset not found" if encoding == "auto" else f"not {encoding}"
    return Bad(place, reason, f"byte {error.object[error.start]:#04x} at {error.start}")


def decode_page(data: bytes, declared: str | None = None) -> str | None:
    """The text of a web page, its few broken bytes as U+FFFD; None when no charset fits.

    Tried in order: a byte order mark, UTF-8, the charset that the server `declared`, the page's
    own declaration, what the bytes look like. UTF-8 goes first because text in another charset is
    never nearly valid in it, and servers often name the wrong one.
    """
    for mark, codec in MARKS.items():
        if data.startswith(mark):
            return data.decode(codec, errors="replace")
    for codec in _candidates(data, declared):
        # not final: a page that was cut in the middle of a character has no broken one
        text = codecs.getincrementaldecoder(codec)("replace").decode(data)
        beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
        if text.count("\ufffd") <= BROKEN_SHARE * beyond_ascii:
            return text
    return None


def _candidates(data: bytes, declared: str | None) -> Iterator[str]:
    yield "utf-8"
    own = DECLARED.search(data, 0, DECLARED_BYTES)
    for name in (declared, own[1].decode("ascii", "ignore") if own else None):
        codec = _codec(name)
        if codec and not codec.startswith("utf-16"):  # it would be no declaration that one can read
            yield codec
    if codec := _codec(detect_encoding(data, html5_compatible=False)):
        yield codec


def _codec(name: str | None) -> str | None:
    """Python's codec for a name as the web understands it; None if it knows none."""
    known = map_encoding_to_html5(name, fallback_utf8=False) if name else None
    codec = CODECS.get(known, known) if known else None
    try:
        return codecs.lookup(codec).name if codec else None
    except LookupError:
        return None
