"""HTML: the main text of a page; a file is a page."""

from collections.abc import Iterator
from pathlib import Path

from resiliparse.extract.html2text import extract_plain_text

from data_tools.read.charset import decode_page
from data_tools.read.format import Span
from data_tools.read.record import WHOLE_FILE, Bad, Record
from data_tools.read.whole_file import read_whole
from data_tools.source import SourceConfig


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
    try:
        return main_text(html)
    except Exception as e:  # whatever the library says about hostile bytes
        return Bad(place, "HTML cannot be parsed", str(e))


def main_text(html: str) -> str:
    """Paragraphs, headings, lists and preformatted text of the main content, as plain text."""
    return extract_plain_text(html, main_content=True, alt_texts=False, list_bullets=False)
