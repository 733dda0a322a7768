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
from jaxlm.data.documents import TABLE
from jaxlm.data.manifest import Manifest, ManifestError, Shard


class Files(Protocol):
    """Where the files of a manifest are."""

    def check(self, manifest: Manifest) -> None:
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

    def tokenizer(self, manifest: Manifest) -> Path:
        """On this machine."""
        ...


class LocalFiles:
    """On a disk of this machine, or one that it has mounted."""

    def __init__(self, root: Path):
        self._root = root

    def check(self, manifest: Manifest) -> None:
        manifests.check_files(manifest, self._root)

    def name(self, shard: Shard) -> str:
        return str(self._root / shard.path)

    def hold(self, shard: Shard, _: Callable[[], bool], /) -> Hold:
        return Hold(self._root / shard.path)

    def table(self, shard: Shard) -> Path:
        return (self._root / shard.path).with_name(TABLE)

    def tokenizer(self, manifest: Manifest) -> Path:
        return self._root / manifest.tokenizer


class StoredFiles:
    """In an object store, with a cache on this machine."""

    def __init__(self, url: str, cfg: CacheConfig):
        """`url`: of the manifest's directory."""
        self._url, self.ahead = url, cfg.ahead
        self.cache = Cache(cfg)
        self._checked = False
        self._tables: dict[str, Hold] = {}
        """Kept, or another process might delete them before they are read."""

    def check(self, manifest: Manifest) -> None:
        if self._checked:
            return
        tops = sorted({shard.path.partition("/")[0] for shard in manifest.shards})
        sizes = storage.sizes(self._url, tops)
        for shard in manifest.shards:
            size = sizes.get(shard.path)
            if size != shard.file_bytes:
                found = "is missing" if size is None else f"{size} bytes"
                raise ManifestError(
                    f"{self.name(shard)}: {found}, the manifest says {shard.file_bytes} bytes; "
                    "restore it or build the corpus again"
                )
        self._checked = True

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

    def tokenizer(self, manifest: Manifest) -> Path:
        # Small, and not counted. Whoever opens it compares it with its hash.
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


def open_files(name: str, cfg: CacheConfig) -> tuple[Manifest, Files]:
    """The manifest of this path or URL, and where its files are. Raises `ManifestError`."""
    if not storage.is_url(name):
        path = Path(name)
        return manifests.load(path), LocalFiles(path.parent)
    try:
        text = storage.read_text(name)
    except FileNotFoundError:
        raise ManifestError(
            f"{name}: no such manifest, or no such bucket; build the corpus "
            "(python -m data_tools build) and copy it there, shards, tokenizer and manifest"
        ) from None
    except UnicodeDecodeError as e:
        raise ManifestError(f"{name}: cannot be read as a manifest: {e}") from None
    return manifests.parse(text, name), StoredFiles(name.rpartition("/")[0], cfg)


def _of_size(size: int) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        if path.stat().st_size != size:
            raise storage.Torn(f"{path.stat().st_size} bytes came of {size}")

    return check
