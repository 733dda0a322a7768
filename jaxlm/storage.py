"""Object stores by URL, gs:// and s3://: whole files, listings, and patience with a store's faults.

A directory is what has its name, with a `/`, before their own: it is there as long as they are.

Credentials and endpoints come from the environment, as the tools of a store take them; a URL that
carries any is refused. Importing this module costs nothing: fsspec comes with the first URL.
"""

import contextlib
import errno
import functools
import logging
import os
import random
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
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
REQUEST_S = 60.0
"""How long a request for a small file or a listing may take, its client's own retries included."""

_CLIENTS = ("aiobotocore", "aiohttp", "botocore", "fsspec", "gcsfs", "google", "requests", "s3fs")
"""Packages whose errors are a store's."""
_BUGS = (TypeError, AttributeError, LookupError, NameError, AssertionError)
"""What no store has raised, even where one had failed before."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Of the disk here, as is an error that names a file."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FORBIDDEN = "Forbidden:"
"""In an `OSError` of gcsfs."""
_TRANSIENT = re.compile(
    "(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|PERMISSION_DENIED|UNAUTHENTICATED): "
)
"""In what tensorstore says of a store that fails or refuses."""


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
    scheme, _, rest = url.partition("://")
    if re.search("[@:?#]", rest):
        raise UserError(
            f"{scheme}://...: was given with a user, a query or a fragment, which may be secret; "
            "give the plain URL, without @ : ? #, and credentials by the environment "
            "(docs/storage.md)"
        )
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise UserError(
            f"{url}: is no URL of an object store that can be used; write a path, or "
            + " or ".join(f"{scheme}://BUCKET/PATH" for scheme in SCHEMES)
        )
    names = parts.path.rstrip("/").split("/")[1:]
    if not parts.netloc or any(name in ("", ".", "..") for name in names):
        raise UserError(
            f"{url}: must be {parts.scheme}://BUCKET/PATH, without '..', '.' or '//' in it"
        )
    if re.search(r"[*\[\]]", url):
        raise UserError(f"{url}: has one of * [ ], which clients take for patterns; rename it")


def read_text(url: str) -> str:
    """The text of a file. `FileNotFoundError` if there is none."""
    return read(url).decode("utf-8")


def read(url: str) -> bytes:
    """A small file. `FileNotFoundError` if there is none."""
    return _ask(url, lambda client: client._cat_file(url))


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
    except FileNotFoundError as e:
        if e.filename is not None:  # of a directory here
            raise
        raise UserError(f"{url}: is missing; {remedy}") from None


def write(url: str, data: bytes) -> None:
    """Writes a file, whole, in place of what is there."""
    _ask(url, lambda client: client._pipe_file(url, data))


def delete(url: str) -> None:
    """Deletes a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        _ask(url, lambda client: client._rm_file(url))


def delete_directory(url: str) -> None:
    """Deletes all that is in it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        tried(url, lambda: _filesystem(_scheme(url)).rm(url, recursive=True))


def modified(url: str) -> float | None:
    """When a file was written, by the store's clock, seconds since 1970; None without one."""
    try:
        info = _ask(url, lambda client: client._info(url))
    except FileNotFoundError:
        return None
    return (info.get("LastModified") or info["mtime"]).timestamp()


def entries(url: str) -> tuple[list[str], list[str]]:
    """Names of the files in a directory and of the directories in it; none where it is not."""
    try:
        listed = _ask(url, lambda client: client._ls(url, detail=True))
    except FileNotFoundError:
        return [], []
    root = url.split("://", 1)[1]
    named = [(info["name"].rstrip("/").removeprefix(f"{root}/"), info["type"]) for info in listed]
    inside = [(name, kind) for name, kind in named if name and name != root]
    files = sorted(name for name, kind in inside if kind == "file")
    return files, sorted(name for name, kind in inside if kind == "directory")


def move(url: str, target: str, first: str) -> None:
    """Moves a directory, which takes a copy of all of it.

    The file `first` is deleted first from where it was, when all is copied: with it the directory
    is whole, without it the rest of one.
    """
    tried(url, lambda: _filesystem(_scheme(url)).copy(f"{url}/", f"{target}/", recursive=True))
    delete(f"{url}/{first}")
    delete_directory(url)


def sizes(url: str, names: Sequence[str]) -> dict[str, int]:
    """Bytes of the files under these names in a directory, by their paths relative to it."""
    found: dict[str, int] = {}
    root = url.split("://", 1)[1]
    for name in names:
        at = f"{url}/{name}"
        listed: Any = tried(at, lambda at=at: _filesystem(_scheme(url)).find(at, detail=True))
        for path, info in listed.items():
            found[path.removeprefix(f"{root}/")] = info["size"]
    return found


def kvstore(url: str) -> dict[str, Any]:
    """The key-value store of a directory, or a file of it, as a JSON spec for tensorstore."""
    scheme, bucket, path = urlsplit(url)[:3]
    place = {"bucket": bucket, "path": path.removeprefix("/")}
    if scheme == "gs":
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if emulator:  # as the other clients take it
            os.environ.setdefault("TENSORSTORE_GCS_HTTP_URL", emulator)
        return {"driver": "gcs", **place}
    spec: dict[str, Any] = {"driver": "s3", **place}
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = next(filter(None, map(os.environ.get, names)), None)
    if endpoint:
        spec["endpoint"] = endpoint
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        spec["aws_region"] = region
    if "AWS_ACCESS_KEY_ID" in os.environ:  # else it would complain that there is no ~/.aws
        spec["aws_credentials"] = {"type": "environment"}
    return spec


def _ask(url: str, request: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What the client says to a request that it makes in `REQUEST_S`, or not."""
    from fsspec.asyn import sync

    client = _filesystem(_scheme(url))
    return tried(url, lambda: sync(client.loop, request, client, timeout=REQUEST_S))


def tried[T](url: str, do: Callable[[], T]) -> T:
    """What `do` returns, which is called again, after a while, when the store fails.

    `FileNotFoundError` if there is no such file or bucket, `EnvironmentProblem` if this user may
    not do it or has no credentials, `StoreError` if the store fails each time, `Torn` if only what
    came was wrong each time.
    """
    for wait_s in (*WAITS_S, None):
        try:
            return do()
        except (FileNotFoundError, UserError, *_BUGS):
            raise
        except Exception as e:
            if isinstance(e, OSError) and (e.filename is not None or e.errno in _DISK):
                raise
            if _is_refusal(e):
                raise _refused(url, e) from None
            if wait_s is None:
                if isinstance(e, Torn):
                    raise
                raise StoreError(
                    f"{url}: the store failed {len(WAITS_S) + 1} times, at last with: {_words(e)}"
                ) from None
            time.sleep(wait_s * random.uniform(0.5, 1.0))
    raise AssertionError


def _is_refusal(e: BaseException) -> bool:
    """Whether the store said no, which it would again."""
    code = str(getattr(e, "code", None))
    return (
        isinstance(e, PermissionError)
        or type(e).__name__ in ("NoCredentialsError", "DefaultCredentialsError")
        or code in ("401", "403")
        or str(e).startswith(_FORBIDDEN)
        or any(word in str(e) for word in ("PERMISSION_DENIED", "UNAUTHENTICATED"))  # tensorstore
    )


def _refused(url: str, e: BaseException) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{url}: the store refuses ({_words(e)}); see that this user's credentials are set and may "
        "read and write there (docs/storage.md)"
    )


def _words(e: BaseException) -> str:
    """The first line of what an error says, if it is not too long."""
    name = type(e).__name__
    if isinstance(e, TimeoutError):
        return f"{name}: no answer in time"
    said = str(e).strip().splitlines()
    return without_queries(f"{name}: {said[0]}" if said else name)[:300]


def without_queries(text: str) -> str:
    """A text without what might be a signature in a URL."""
    return re.sub(r"\?\S*", "?...", text)


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def problem(error: BaseException, url: str | None = None) -> UserError | None:
    """What a client of a store has raised, as `tried` would; None if it was none.

    `url`: of what was asked for, if it is known to be of a store.
    """
    if isinstance(error, (UserError, FileNotFoundError, *_BUGS)):
        return None
    packages = {type(e).__module__.partition(".")[0] for e in _with_causes(error)}
    failed = url is not None and _TRANSIENT.search(str(error)) and not packages & {"jax", "jaxlib"}
    refused = str(error).startswith(_FORBIDDEN)
    if not (failed or refused or packages & {*_CLIENTS}):
        return None
    if _is_refusal(error):
        return _refused(url or "object store", error)
    return StoreError(f"{url or 'object store'}: failed, at last with: {_words(error)}")


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what has led to it, as a traceback shows them; an answer was no fault."""
    while error is not None and not isinstance(error, FileNotFoundError):
        yield error
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context


@functools.cache
def give_patience() -> None:
    """Other users of fsspec in this process get clients that retry and do not wait for ever."""
    _settle()
    import fsspec.config

    for scheme in SCHEMES:
        fsspec.config.conf[scheme] = {"use_listings_cache": False, **_patience(scheme, tries=5)}


@functools.cache
def make_no_directories(scheme: str) -> None:
    """Clients of this store in this process make none, since there are none.

    They would look at the bucket, or even make one, and who may write below a directory of it alone
    may do neither.
    """

    def make(client: Any, path: str, create_parents: bool = True, exist_ok: bool = False) -> None:
        pass

    for name in ("mkdir", "makedirs"):
        setattr(_client_class(scheme), name, make)


def forget_clients() -> None:
    """The next request makes its client anew, as the environment then says."""
    _filesystem.cache_clear()


@functools.cache
def _settle() -> None:
    # gcsfs would first ask by gRPC of which kind the bucket is, for a minute where it cannot.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    for name in SCHEMES.values():  # what fails is said by whoever asked, once
        logging.getLogger(name).setLevel(logging.CRITICAL)


@functools.cache
def _filesystem(scheme: str) -> Any:
    """The one client of a store in this process."""
    _settle()
    cls = _client_class(scheme)
    return cls(use_listings_cache=False, skip_instance_cache=True, **_patience(scheme, tries=1))


def _client_class(scheme: str) -> Any:
    try:
        import fsspec

        return fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise EnvironmentProblem(
            f"{scheme}:// needs the package {SCHEMES[scheme]}: pip install 'jaxlm[stores]'"
        ) from None


def _patience(scheme: str, tries: int) -> dict[str, Any]:
    if scheme == "s3":
        retries = {"mode": "standard", "total_max_attempts": tries}
        limits = {"connect_timeout": CONNECT_S, "read_timeout": SILENT_S, "retries": retries}
        return {"config_kwargs": limits}
    import aiohttp

    limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    return {"session_kwargs": {"timeout": limits}}
