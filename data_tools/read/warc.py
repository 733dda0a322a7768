"""WARC and WET archives of a crawl: a page is a record, with the text of its HTML."""

import io
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from data_tools.read.charset import decode_page
from data_tools.read.format import Span
from data_tools.read.html import page_text
from data_tools.read.record import Bad, Record, too_long
from data_tools.read.warc_records import RawRecord, read_warc_records
from data_tools.source import SourceConfig

HTML = ("text/html", "application/xhtml+xml")
PLAIN = "text/plain"
PAGES = (WarcRecordType.response, WarcRecordType.resource, WarcRecordType.conversion)
"""Records that hold what was fetched or its text; requests and notes of the crawler are none."""


def read_warc(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """A record a page, in the place "byte N": the text of HTML, or plain text as it is.

    Its meta: url; site, the host without "www."; date, of the crawl. A page that was not found,
    or is an image or the like, is bad.
    """
    for raw in read_warc_records(path, span, source.max_record_bytes):
        found = raw if isinstance(raw, Bad) else _record(raw, source.max_record_bytes)
        if found is not None:
            yield found


def _record(raw: RawRecord, limit: int) -> Record | Bad | None:
    try:
        warc = next(ArchiveIterator(io.BytesIO(raw.data), stream_detect=False, auto_decode="all"))
        payload = warc.reader.read(limit + 1)
    except Exception as e:  # whatever the library says about hostile bytes
        return Bad(raw.place, "broken WARC record", str(e))
    if warc.record_type not in PAGES:
        return None
    if len(payload) > limit:
        return too_long(raw.place, len(payload), limit)
    text = _text(warc, payload, raw.place)
    return text if isinstance(text, Bad) else Record(text, raw.place, raw.offset, _meta(warc))


def _text(warc: WarcRecord, payload: bytes, place: str) -> str | Bad:
    if warc.record_type == WarcRecordType.response:
        status = warc.http_headers.status_code if warc.http_headers else None
        if status != 200:
            return Bad(place, "HTTP status is not 200", str(status))
        kind, charset = warc.http_content_type, warc.http_charset
    else:
        kind, charset = _header(warc, "Content-Type").partition(";")[0].strip(), None
    if kind in HTML:
        return page_text(payload, place, charset)
    if kind != PLAIN:
        return Bad(place, "neither HTML nor plain text", str(kind))
    text = decode_page(payload, charset)
    return Bad(place, "charset not found") if text is None else text


def _meta(warc: WarcRecord) -> dict[str, str]:
    url = _header(warc, "WARC-Target-URI").strip("<>")
    meta = {"url": url, "site": site_of(url), "date": _header(warc, "WARC-Date")}
    return {name: value for name, value in meta.items() if value}


def _header(warc: WarcRecord, name: str) -> str:
    return warc.headers.get(name) or ""


def site_of(url: str) -> str:
    """The host of a URL without "www.", or an empty string."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host.removeprefix("www.")
