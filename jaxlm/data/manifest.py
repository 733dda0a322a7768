"""The manifest of a tokenized corpus: what `data_tools` writes and the loader checks.

`manifest.json` lies beside the shards and the tokenizer; its paths are relative to it. It is the
whole contract between the two halves. Standard library only.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from jaxlm.errors import UserError

VERSION = 2
REMEDY = "restore the manifest, or build the corpus again"
FIRST_BYTES = 64
"""Of a shard that is read to see that it can be."""
Split = Literal["train", "heldout"]
Packing = Literal["concat", "best_fit"]


class ManifestError(UserError):
    """A corpus that cannot be trained on: names the file, what was found and what was expected."""


@dataclass(frozen=True)
class Shard:
    """One ArrayRecord file; a record is one chunk of `chunk_tokens + 1` little-endian ids."""

    path: str
    """Relative to the manifest."""
    source: str
    type: str
    split: Split
    chunks: int
    tokens: int
    """Targets in the shard, without padding: every token but the BOS that start documents."""
    text_bytes: int
    """UTF-8 bytes of the documents in it."""
    file_bytes: int
    sha256: str
    documents: int
    """Documents with text in the shard."""
    table_bytes: int
    """Size of the document table beside it (`jaxlm.data.documents`)."""
    table_sha256: str


@dataclass(frozen=True)
class MixtureStage:
    """A stretch of training with one mixture."""

    until: float
    """Where it ends, as a share of the run."""
    weights: Mapping[str, float]
    """Type -> share of the tokens, relative."""


@dataclass(frozen=True)
class Mixture:
    """The proportions that a corpus was made for; see `data_tools.mixture.MixtureConfig`."""

    stages: tuple[MixtureStage, ...]
    """Empty: each source by its size."""
    max_epochs: float
    tolerance: float
    source_weights: Mapping[str, float]
    """Source -> how often a token of it is drawn, relative to the other sources of its type."""


@dataclass(frozen=True)
class Manifest:
    """A corpus. `chunk_tokens` new tokens a record; the last token of a chunk starts the next."""

    version: int
    tokenizer: str
    """Path of the tokenizer (a model file, or a directory), relative to the manifest."""
    tokenizer_hash: str
    vocab_size: int
    """True vocabulary: every id in a shard is below it."""
    bos_id: int
    """The boundary token: it starts each document, and weighs nothing as a target."""
    pad_id: int
    """Fills the tail of a shard; weighs nothing as a target."""
    dtype: Literal["uint16", "uint32"]
    chunk_tokens: int
    packing: Packing
    mixture: Mixture
    shards: tuple[Shard, ...]
    recipe: Mapping[str, Any]
    """The resolved recipe that built it."""
    counts: Mapping[str, Any]
    """Documents read, kept and dropped by rule, a source; for the report."""

    def sources(self, split: Split) -> dict[str, list[Shard]]:
        """Source name -> its shards of one split, in the manifest's order."""
        found: dict[str, list[Shard]] = {}
        for shard in self.shards:
            if shard.split == split:
                found.setdefault(shard.source, []).append(shard)
        return found

    def paths(self) -> list[str]:
        """Of all files that it names, relative to it."""
        return [self.tokenizer, *(shard.path for shard in self.shards)]

    def chunks_per_row(self, seq_len: int) -> int:
        """Chunks in a row of `seq_len`; `ManifestError` if it is not whole chunks."""
        if seq_len % self.chunk_tokens:
            lower = seq_len // self.chunk_tokens * self.chunk_tokens
            fits = [str(n) for n in (lower, lower + self.chunk_tokens) if n]
            raise ManifestError(
                f"seq_len={seq_len} is not a multiple of the corpus's "
                f"chunk_tokens={self.chunk_tokens}; use {' or '.join(fits)}"
            )
        return seq_len // self.chunk_tokens

    def setting[T](self, name: str, hint: type[T]) -> T:
        """A field of the recipe by its dotted name (`pack.salt`), of the type that it has there.

        `ManifestError` if it is not there, or of another type.
        """
        value: Any = self.recipe
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return _value(hint, value, f"recipe.{name}")

    def fingerprint(self) -> str:
        """Hash of all that decides which token ids lie where: 16 hex digits.

        Paths, the recipe's wording and the counts are left out: a moved corpus is the same one.
        """
        shards = [(s.source, s.type, s.split, s.chunks, s.tokens, s.sha256) for s in self.shards]
        ids = (self.tokenizer_hash, self.vocab_size, self.bos_id, self.pad_id)
        data = json.dumps([self.version, ids, self.dtype, self.chunk_tokens, shards])
        return hashlib.sha256(data.encode()).hexdigest()[:16]


def save(manifest: Manifest, path: Path) -> None:
    """Writes `path` whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    data = json.dumps(dataclasses.asdict(manifest), ensure_ascii=False, indent=1)
    temporary.write_text(data + "\n", encoding="utf-8")
    temporary.replace(path)


def load(path: Path) -> Manifest:
    """Reads a manifest; `ManifestError` if it is missing, of another version or not whole, or if a
    value in it cannot be."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ManifestError(
            f"{path.absolute()}: no such manifest; build the corpus first "
            "(python -m data_tools build), or start in the directory that its path is relative to"
        ) from None
    except (OSError, ValueError) as e:
        raise ManifestError(f"{path}: cannot be read as a manifest: {e}") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Manifest:
    """A manifest from its text; `path` is for the `ManifestError`."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as e:
        raise ManifestError(f"{path}: not a manifest, JSON breaks at line {e.lineno}") from None
    except (ValueError, RecursionError) as e:
        raise ManifestError(f"{path}: cannot be read as a manifest: {e}") from None
    if not isinstance(data, dict):
        raise ManifestError(f"{path}: not a manifest, but a JSON {type(data).__name__}")
    if data.get("version") != VERSION:
        raise ManifestError(
            f"{path}: version {data.get('version')}, this code reads {VERSION}; build it again"
        )
    try:
        manifest: Manifest = _object(Manifest, data, "")
        _check(manifest)
    except ManifestError as e:
        raise ManifestError(f"{path}: {e}") from None
    return manifest


def _value(hint: Any, value: Any, name: str) -> Any:
    """Plain data as what it is annotated to be; `name` is for the `ManifestError`."""
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, dict):
            return _object(hint, value, name)
        expected = "an object"
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_value(args[0], v, f"{name}[{i}]") for i, v in enumerate(value))
        expected = "a list"
    elif origin is Mapping:
        if isinstance(value, dict):
            return {k: _value(args[1], v, f"{name}[{k!r}]") for k, v in value.items()}
        expected = "an object"
    elif origin is Literal:
        if value in args:
            return value
        expected = " or ".join(map(repr, args))
    elif hint in (int, float):  # counts, ids and weights
        if type(value) in (int, hint) and 0 <= value < 2**63:
            return value
        expected = "an integer from 0 on" if hint is int else "a number from 0 on"
    else:
        if hint is Any or type(value) is hint:
            return value
        expected = f"a {hint.__name__}"
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    raise ManifestError(f"{name}={shown}: must be {expected}; {REMEDY}")


def _object(cls: Any, value: dict[str, Any], name: str) -> Any:
    hints = _hints(cls)
    inside = f"{name}." if name else ""
    if wrong := sorted(hints.keys() ^ value.keys()):
        rule = "is missing" if wrong[0] in hints else "is no field of a manifest"
        raise ManifestError(f"{inside}{wrong[0]} {rule}; {REMEDY}")
    return cls(**{field: _value(hints[field], v, inside + field) for field, v in value.items()})


_hints = functools.cache(get_type_hints)


def _check(manifest: Manifest) -> None:
    """`ManifestError` for values that do not fit each other."""
    stages, weights = manifest.mixture.stages, manifest.mixture.source_weights
    ends, most = [stage.until for stage in stages], 1 << int(manifest.dtype.removeprefix("uint"))
    unweighed = sorted(manifest.sources("train").keys() - weights.keys())
    fault = ""
    if not manifest.chunk_tokens:
        fault = "chunk_tokens=0: must be at least 1"
    elif manifest.vocab_size > most:
        fault = f"vocab_size={manifest.vocab_size}: {manifest.dtype} has {most} ids"
    elif max(manifest.bos_id, manifest.pad_id) >= manifest.vocab_size:
        fault = (
            f"bos_id={manifest.bos_id}, pad_id={manifest.pad_id}: must be below "
            f"vocab_size={manifest.vocab_size}"
        )
    elif ends and (ends != sorted({end for end in ends if end}) or ends[-1] != 1):
        fault = f"mixture.stages end until={ends}: must be shares of the run, increasing up to 1"
    elif outside := [path for path in manifest.paths() if not is_inside(path)]:
        fault = f"{outside[0]!r}: is not a path below the manifest's directory"
    elif unweighed:
        fault = f"mixture.source_weights has no weight for {', '.join(unweighed)}"
    if fault:
        raise ManifestError(f"{fault}; {REMEDY}")


def is_inside(path: str) -> bool:
    """Whether it names a file below the directory that it is relative to, and is plainly so."""
    parts = path.split("/")
    return not {"", ".", ".."} & set(parts) and not set("\\:?#\0") & set(path)


def check_files(manifest: Manifest, root: Path) -> None:
    """Every shard present and of its recorded size, and one of each source can be read.

    Cheap, done at each start.
    """
    for shard in manifest.shards:
        path = root / shard.path
        if not path.is_file():
            raise ManifestError(f"{path}: shard is missing; restore it or build the corpus again")
        if path.stat().st_size != shard.file_bytes:
            raise ManifestError(
                f"{path}: {path.stat().st_size} bytes, the manifest says {shard.file_bytes}; "
                "the shard is damaged or was replaced: restore it or build the corpus again"
            )
    for shard in {shard.source: shard for shard in manifest.shards}.values():
        try:
            with (root / shard.path).open("rb") as f:
                f.read(FIRST_BYTES)
        except OSError as e:
            raise ManifestError(
                f"{root / shard.path}: cannot be read ({e.strerror}); let this user read it, or "
                "see to its disk"
            ) from None


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
