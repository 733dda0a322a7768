"""The site that a document belongs to."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from data_tools.document import Document

EVERYWHERE = 0
"""Stands for all sites where the hash of one is expected."""


def site_of(document: Document) -> str:
    """`meta["site"]`; else the host of `meta["url"]`, without `www.`; else source and directory.

    A directory is the best guess where no address is kept: a crawl is often stored site by site,
    and one that is not becomes one large site.
    """
    if site := document.meta.get("site"):
        return site
    try:
        host = urlsplit(document.meta.get("url", "")).hostname
    except ValueError:  # brackets that hold no IPv6 address
        host = None
    if host:
        return host.removeprefix("www.")
    return f"{document.source}:{PurePosixPath(document.path).parent}"
