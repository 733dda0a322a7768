"""Object stores by URL, gs:// and s3://: whole files, listings, and patience with a store's faults.

Credentials and endpoints come from the environment, as the tools of a store take them; a URL that
carries any is refused. Importing this module costs nothing: fsspec comes with the first URL.
"""

import errno
import functools
import logging
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jaxlm.errors import RESTART, EnvironmentProblem, UserError

SCHEMES = {"gs": "gcsfs", "s3": "s3fs"}
"""Of the stores that can be used, and the package that each needs."""

WAITS_S = (1.0, 4.0, 15.0)
"""Between the tries of a request, besides those that the store's own client makes."""

CONNECT_S, SILENT_S = 20.0, 60.0
"""How long a store may take to answer a connection, and to send the next byte."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class StoreError(UserError):
    """A store that did not answer, however often it was asked: a later start may find it well."""

    exit_code = RESTART


class Torn(Exception):
    """What came is not what was asked for: ask again."""


def is_url(name: str) -> bool:
    """Whether a name is a URL, of whatever kind, and not the path of a local file."""
    return _URL.match(name) is not None


def check(url: str) -> None:
    """`UserError` for a URL that is of no store, or that carries a secret."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise UserError(
            f"{shown}: is no URL of an object store that can be used; write a path, or "
            + " or ".join(f"{scheme}://BUCKET/PATH" for scheme in SCHEMES)
        )
    if "@" in parts.netloc or "?" in url or "#" in url:
        raise UserError(
            f"{shown}: was given with a user, a query or a fragment, which may be secret; give "
            "the plain URL, and credentials by the environment (docs/storage.md)"
        )
    if not parts.netloc or ".." in parts.path.split("/"):
        raise UserError(f"{url}: must be {parts.scheme}://BUCKET/PATH, without '..'")


def read_text(url: str) -> str:
    """The text of a file. `FileNotFoundError` if there is none."""
    return tried(url, lambda: _filesystem(_scheme(url)).cat_file(url)).decode("utf-8")


def download(url: str, path: Path, verify: Callable[[Path], None] = lambda path: None) -> None:
    """Copies a file here. `verify` raises `Torn` if it is not whole; then it is fetched again.

    `UserError` if there is none, or if what comes is wrong each time.
    """

    def once() -> None:
        _filesystem(_scheme(url)).get_file(url, str(path))
        verify(path)

    remedy = "restore it, or build the corpus again"
    try:
        tried(url, once)
    except Torn as e:
        raise UserError(f"{url}: {e}, each time that it was fetched; {remedy}") from None
    except FileNotFoundError:
        raise UserError(f"{url}: is missing; {remedy}") from None


def sizes(url: str, names: Sequence[str]) -> dict[str, int]:
    """Bytes of the files under these names in a directory, by their paths relative to it."""
    found: dict[str, int] = {}
    root = url.split("://", 1)[1]
    for name in names:
        listed: Any = tried(
            f"{url}/{name}",
            lambda name=name: _filesystem(_scheme(url)).find(f"{url}/{name}", detail=True),
        )
        for path, info in listed.items():
            found[path.removeprefix(f"{root}/")] = info["size"]
    return found


def tried[T](url: str, do: Callable[[], T]) -> T:
    """What `do` returns, which is called again, after a while, when the store fails.

    `FileNotFoundError` if there is no such file or bucket, `EnvironmentProblem` if this user may
    not do it or has no credentials, `StoreError` if the store fails each time, `Torn` if only what
    came was wrong each time.
    """
    for wait_s in (*WAITS_S, None):
        try:
            return do()
        except (FileNotFoundError, UserError):
            raise
        except Exception as e:
            if isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise  # of the disk here
            if _is_refusal(e):
                raise EnvironmentProblem(
                    f"{url}: the store refuses ({_words(e)}); see that this user's credentials are "
                    "set and may read and write there (docs/storage.md)"
                ) from None
            if wait_s is None:
                if isinstance(e, Torn):
                    raise
                raise StoreError(
                    f"{url}: the store failed {len(WAITS_S) + 1} times, at last with: {_words(e)}"
                ) from None
            time.sleep(wait_s * random.uniform(0.5, 1.0))
    raise AssertionError


def _is_refusal(e: Exception) -> bool:
    """Whether the store said no, which it would again."""
    code = str(getattr(e, "code", None))
    return (
        isinstance(e, PermissionError)
        or type(e).__name__ in ("NoCredentialsError", "DefaultCredentialsError")
        or code in ("401", "403")
        or str(e).startswith("Forbidden:")  # an OSError of gcsfs
    )


def _words(e: Exception) -> str:
    """The first line of what an error says, without what might be a signature in a URL."""
    name = type(e).__name__
    if isinstance(e, TimeoutError):
        return f"{name}: no answer in time"
    said = str(e).strip().splitlines()
    return re.sub(r"\?\S*", "?...", f"{name}: {said[0]}" if said else name)[:300]


def _scheme(url: str) -> str:
    return url.partition("://")[0]


@functools.cache
def _filesystem(scheme: str) -> Any:
    """The one client of a store in this process."""
    # gcsfs would first ask by gRPC of which kind the bucket is, for a minute where it cannot.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        import fsspec

        cls = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise EnvironmentProblem(
            f"{scheme}:// needs the package {SCHEMES[scheme]}: pip install 'jaxlm[stores]'"
        ) from None
    # What fails is said by whoever asked, once.
    logging.getLogger(SCHEMES[scheme]).setLevel(logging.CRITICAL)
    return cls(use_listings_cache=False, **_patience(scheme))


def _patience(scheme: str) -> dict[str, Any]:
    if scheme == "s3":
        retries = {"mode": "standard", "total_max_attempts": 1}
        limits = {"connect_timeout": CONNECT_S, "read_timeout": SILENT_S, "retries": retries}
        return {"config_kwargs": limits}
    import aiohttp

    limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    return {"session_kwargs": {"timeout": limits}}
