"""The files of a corpus: beside its manifest on a disk, or in an object store and fetched.

Shards are read where they lie on this machine (ArrayRecord can read no other), held while they are
open, so that the cache does not delete them.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from jaxlm import storage
from jaxlm.data import manifest as manifests
from jaxlm.data.cache import Cache, CacheConfig, Hold, Stored
from jaxlm.data.documents import TABLE, table_path
from jaxlm.data.manifest import Manifest, ManifestError, Shard


class Files(Protocol):
    """A manifest, and where its files are."""

    manifest: Manifest

    def check(self) -> None:
        """`ManifestError` if a shard is missing or of another size."""
        ...

    def name(self, shard: Shard) -> str:
        """Of a shard, for messages."""
        ...

    def hold(self, shard: Shard, let_go: Callable[[], bool], /) -> Hold:
        """The shard on this machine; `let_go` as in `Cache.fetch`."""
        ...

    def table(self, shard: Shard) -> Path:
        """The document table of a shard, on this machine."""
        ...

    def tokenizer(self) -> Path:
        """On this machine."""
        ...


class LocalFiles:
    """On a disk of this machine, or one that it has mounted."""

    def __init__(self, manifest: Manifest, root: Path):
        """`root`: the manifest's directory."""
        self.manifest, self._root = manifest, root

    def check(self) -> None:
        manifests.check_files(self.manifest, self._root)

    def name(self, shard: Shard) -> str:
        return str(self._root / shard.path)

    def hold(self, shard: Shard, _: Callable[[], bool], /) -> Hold:
        return Hold(self._root / shard.path)

    def table(self, shard: Shard) -> Path:
        return table_path(self._root, shard)

    def tokenizer(self) -> Path:
        return self._root / self.manifest.tokenizer


class StoredFiles:
    """In an object store, with a cache on this machine."""

    def __init__(self, manifest: Manifest, url: str, cfg: CacheConfig):
        """`url`: of the manifest's directory."""
        self.manifest, self._url, self.ahead = manifest, url, cfg.ahead
        self.cache = Cache(cfg)
        self._tables: dict[str, Hold] = {}
        """Kept, or another process might delete them before they are read."""

    def check(self) -> None:
        tops = sorted({shard.path.partition("/")[0] for shard in self.manifest.shards})
        sizes = storage.sizes(self._url, tops)
        for shard in self.manifest.shards:
            size = sizes.get(shard.path)
            if size != shard.file_bytes:
                found = "is missing" if size is None else f"{size} bytes"
                raise ManifestError(
                    f"{self.name(shard)}: {found}, the manifest says {shard.file_bytes} bytes; "
                    "restore it or build the corpus again"
                )

    def name(self, shard: Shard) -> str:
        return f"{self._url}/{shard.path}"

    def stored(self, shard: Shard) -> Stored:
        """A shard, as the cache knows it."""
        return Stored(self.name(shard), shard.file_bytes, shard.sha256)

    def hold(self, shard: Shard, let_go: Callable[[], bool], /) -> Hold:
        return self.cache.hold(self.stored(shard), let_go)

    def table(self, shard: Shard) -> Path:
        if shard.path not in self._tables:
            url = f"{self.name(shard).rpartition('/')[0]}/{TABLE}"
            found = self.cache.hold(Stored(url, shard.table_bytes, shard.table_sha256))
            self._tables[shard.path] = found
        return self._tables[shard.path].path

    def tokenizer(self) -> Path:
        # Small, and not counted. Whoever opens it compares it with its hash.
        manifest = self.manifest
        named = hashlib.sha256(manifest.tokenizer_hash.encode()).hexdigest()
        place = self.cache.directory / "tokenizers" / named
        if not (place / manifest.tokenizer).exists():
            place.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as fresh:
                sizes = storage.sizes(self._url, [manifest.tokenizer])
                if not sizes:
                    raise ManifestError(
                        f"{self._url}/{manifest.tokenizer}: no such tokenizer; copy it there with "
                        "the corpus"
                    )
                for name, size in sizes.items():
                    if not manifests.is_inside(name):
                        raise ManifestError(f"{self._url}/{name}: is no file of a tokenizer")
                    path = Path(fresh, "whole", name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    storage.download(f"{self._url}/{name}", path, _of_size(size))
                with contextlib.suppress(OSError):  # another process was faster
                    Path(fresh, "whole").rename(place)
        return place / manifest.tokenizer


def open_files(name: str, cfg: CacheConfig) -> Files:
    """The manifest of this path or URL, checked with its files: once at each start.

    Checked are the sizes of all shards; each is opened, and its records counted, when first read.
    Raises `ManifestError`.
    """
    files = _stored(name, cfg) if storage.is_url(name) else _local(Path(name))
    _check_no_twins(files.manifest)
    files.check()
    return files


def _local(path: Path) -> LocalFiles:
    return LocalFiles(manifests.load(path), path.parent)


def _stored(url: str, cfg: CacheConfig) -> StoredFiles:
    try:
        text = storage.read_text(url)
    except FileNotFoundError:
        raise ManifestError(
            f"{url}: no such manifest, or no such bucket; build the corpus "
            "(python -m data_tools build) and copy it there, shards, tokenizer and manifest"
        ) from None
    except UnicodeDecodeError as e:
        raise ManifestError(f"{url}: cannot be read as a manifest: {e}") from None
    return StoredFiles(manifests.parse(text, url), url.rpartition("/")[0], cfg)


def _check_no_twins(manifest: Manifest) -> None:
    """A shard listed twice would be trained on twice, or trained on and held out."""
    with_rows = [shard for shard in manifest.shards if shard.chunks]  # empty ones are all alike
    for what in ("path", "sha256"):
        seen: dict[str, Shard] = {}
        for shard in with_rows:
            twin = seen.setdefault(getattr(shard, what), shard)
            if twin is not shard:
                raise ManifestError(
                    f"{twin.path} ({twin.source}, {twin.split}) and {shard.path} ({shard.source}, "
                    f"{shard.split}) have one {what}: a shard may be listed once; "
                    "build the corpus again"
                )


def _of_size(size: int) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        if path.stat().st_size != size:
            raise storage.Torn(f"{path.stat().st_size} bytes came of {size}")

    return check
