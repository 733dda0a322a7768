"""Reads a finished corpus whole, and holds it against its manifest."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from data_tools.pack.shuffle import id_halves
from data_tools.pack.stream import Damage, Stream, read_stream
from jaxlm.data import manifest as manifests
from jaxlm.data.documents import TABLE
from jaxlm.data.manifest import Manifest, ManifestError, Shard, sha256
from jaxlm.data.tokenizer import TokenizerError, open_tokenizer


def verify(workdir: Path) -> Iterator[str]:
    """Yields a line for each shard, then one about them all.

    Holds one block of records in memory, and the numbers of one document table. `ManifestError`
    names all that is damaged, and what to do: at once for the tokenizer, at the end for shards.
    """
    path = workdir / "manifest.json"
    manifest = manifests.load(path)
    sizes_V = _piece_sizes(manifest, workdir)
    damaged = []
    for shard in manifest.shards:
        try:
            _verify_shard(manifest, workdir, shard, sizes_V)
        except Damage as e:
            damaged.append(str(e))
            yield f"{e}"
        else:
            yield f"{shard.path}: {shard.chunks} records, {shard.documents} documents agree"
    if damaged:
        raise ManifestError(
            f"{path}: {len(damaged)} of {len(manifest.shards)} shards are damaged; remove the "
            "directories of these files and run the same build again, which makes them anew:\n"
            + "\n".join(damaged)
        )
    yield f"{len(manifest.shards)} shards agree with {path}"


def _piece_sizes(manifest: Manifest, workdir: Path) -> np.ndarray | None:
    """int32[V]: bytes of text that each id stands for; None where ids alone do not tell."""
    path, remedy = workdir / manifest.tokenizer, "run the same build again, which writes it anew"
    try:
        tokenizer = open_tokenizer(path)
    except TokenizerError as e:
        raise ManifestError(f"{e}; if it was damaged, {remedy}") from None
    found = (tokenizer.hash(), tokenizer.vocab_size)
    expected = (manifest.tokenizer_hash, manifest.vocab_size)
    if found != expected:
        raise ManifestError(
            f"{path}: a tokenizer of hash {found[0]} with {found[1]} pieces, the shards were made "
            f"with {expected[0]}, {expected[1]} pieces; {remedy}"
        )
    spelling = tokenizer.spelling()
    return None if spelling is None else np.diff(spelling.starts).astype(np.int32)


def _verify_shard(
    manifest: Manifest, workdir: Path, shard: Shard, sizes_V: np.ndarray | None
) -> None:
    """`Damage` says what differs."""
    records = workdir / shard.path
    table = records.with_name(TABLE)
    _verify_file(records, shard.file_bytes, shard.sha256)
    _verify_file(table, shard.table_bytes, shard.table_sha256)
    stream = read_stream(records, manifest, shard.chunks, sizes_V)
    _verify_table(table, shard, stream)
    if stream.text_bytes is not None and stream.text_bytes != shard.text_bytes:
        raise Damage(
            f"{records}: the ids spell {stream.text_bytes} bytes of text, the manifest says "
            f"{shard.text_bytes}"
        )


def _verify_file(path: Path, size: int, expected: str) -> None:
    if not path.is_file():
        raise Damage(f"{path}: is missing")
    if path.stat().st_size != size:
        raise Damage(f"{path}: {path.stat().st_size} bytes, the manifest says {size}")
    if sha256(path) != expected:
        raise Damage(f"{path}: differs from its sha256")


def _verify_table(path: Path, shard: Shard, stream: Stream) -> None:
    """Each piece starts at a BOS and is as long as what follows it; those of a document are all
    of it."""
    table = pq.read_table(path, columns=["id", "shard", "start", "tokens", "skip"])
    start_P, tokens_P, skip_P = (table[name].to_numpy() for name in ("start", "tokens", "skip"))
    if table["shard"].unique().to_pylist() != [path.parent.name]:
        raise Damage(f"{path}: is the table of another shard")
    if not np.array_equal(stream.start_P, start_P):
        raise Damage(f"{path}: documents do not start where the records have a BOS")
    if not np.array_equal(stream.tokens_P, tokens_P):
        raise Damage(f"{path}: documents are not as long as in the records")
    high, low = id_halves(table["id"])
    order = np.lexsort((skip_P, low, high))
    high, low, skip_P, end_P = high[order], low[order], skip_P[order], (skip_P + tokens_P)[order]
    continues_P = np.append(False, (high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    if (skip_P != np.where(continues_P, np.append(0, end_P[:-1]), 0)).any():
        raise Damage(f"{path}: the pieces of a document do not follow each other")
    for what, found, expected in (
        ("documents", np.count_nonzero(~continues_P), shard.documents),
        ("tokens", tokens_P.sum(), shard.tokens),
    ):
        if found != expected:
            raise Damage(f"{path}: {found} {what}, the manifest says {expected}")
