"""HTML: the main text of a page; a file is a page."""

import re
from collections.abc import Iterator
from pathlib import Path

from resiliparse.extract.html2text import extract_plain_text

from data_tools.read.charset import decode_page
from data_tools.read.format import Span
from data_tools.read.record import WHOLE_FILE, Bad, Record
from data_tools.read.whole_file import read_whole
from data_tools.source import SourceConfig

UNORDERED_LIST = re.compile(r"<(/?)ul\b", re.IGNORECASE)
MENU = re.compile(r"[^<>]*+>\s*+<li\b[^<>]*+>\s*+(?:<\w[^<>]*+>\s*+)?<a\b", re.IGNORECASE)
"""What follows "<ul" when the first item begins with a link, perhaps inside one other element."""

NO_DEPTH = (
    "animate|area|base|br|circle|col|dd|dt|ellipse|embed|hr|image|img|input|li|line|link|meta|"
    "option|p|param|path|polygon|polyline|rect|source|stop|td|th|tr|track|use|wbr"
)
"""Elements without an end tag, or that need none, or are written `<rect/>`."""
TAG = re.compile(rf"<(/?)(?!(?:{NO_DEPTH})\b)[a-z]", re.IGNORECASE)
OPTION = re.compile(r"<option\b", re.IGNORECASE)
DEPTH, OPTIONS = 500, 5000
FEW_TAGS = 5000
"""A page with fewer cannot take long."""


def read_html(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """One record: the text of the page without navigation and markup."""
    data = read_whole(path, source.max_record_bytes)
    if isinstance(data, Bad):
        yield data
        return
    text = page_text(data, WHOLE_FILE)
    yield text if isinstance(text, Bad) else Record(text, WHOLE_FILE, 0)


def page_text(data: bytes, place: str, charset: str | None = None) -> str | Bad:
    """The main text of a page; `charset` is what its server said."""
    html = decode_page(data, charset)
    if html is None:
        return Bad(place, "charset not found")
    if excess := excess_of(html):
        return Bad(place, "HTML too deep or with too many options", excess)
    try:
        return main_text(html)
    except Exception as e:  # whatever the library says about hostile bytes
        return Bad(place, "HTML cannot be parsed", str(e))


def excess_of(html: str) -> str:
    """What would take the parser a time that grows with the square of the page, or nothing.

    No browser shows what is deeper than 512 elements as its author meant it.
    """
    if html.count("<") < FEW_TAGS:
        return ""
    depth = deepest = 0
    for tag in TAG.finditer(html):
        depth = max(0, depth - 1) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    if deepest > DEPTH:
        return f"{deepest} elements inside one another, at most {DEPTH}"
    options = len(OPTION.findall(html))
    return f"{options} options, at most {OPTIONS}" if options > OPTIONS else ""


def main_text(html: str) -> str:
    """Paragraphs, headings, lists and preformatted text of the main content, as plain text."""
    return extract_plain_text(
        _lists_of_words(html), main_content=True, alt_texts=False, list_bullets=False
    )


def _lists_of_words(html: str) -> str:
    """The page with <ol> for each <ul> whose first item does not begin with a link.

    The extractor takes every <ul> for a menu, and would leave out a third of a manual.
    """
    open_lists: list[bool] = []

    def renamed(tag: re.Match[str]) -> str:
        if tag[1]:
            of_words = bool(open_lists) and open_lists.pop()
        else:
            of_words = MENU.match(html, tag.end()) is None
            open_lists.append(of_words)
        return f"<{tag[1]}ol" if of_words else tag[0]

    return UNORDERED_LIST.sub(renamed, html)
