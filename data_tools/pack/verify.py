"""Reads a finished corpus whole, and holds it against its manifest."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq

from data_tools.corpus import source_weights
from data_tools.hashes import words
from data_tools.mixture import in_manifest
from data_tools.pack.pile import recipe_source
from data_tools.pack.stream import Damage, Stream, read_stream
from data_tools.recipe import Recipe
from jaxlm.data import manifest as manifests
from jaxlm.data.documents import TABLE, order_key
from jaxlm.data.manifest import Manifest, ManifestError, Shard, Split, sha256
from jaxlm.data.tokenizer import TokenizerError, open_tokenizer
from jaxlm.schema import ConfigError, parse

REMEDY = "run the same build again, which writes it anew"


def verify(workdir: Path) -> Iterator[str]:
    """Yields a line for each shard, then one about them all.

    Holds one block of records in memory, and the numbers of one document table. `ManifestError`
    names all that is damaged, and what to do: at once for manifest and tokenizer, at the end for
    shards.
    """
    path = workdir / "manifest.json"
    manifest = manifests.load(path)
    recipe = _recipe(manifest, path)
    _verify_listed(manifest, path, recipe)
    sizes_V = _piece_sizes(manifest, workdir)
    damaged = []
    for shard in manifest.shards:
        try:
            _verify_shard(manifest, workdir, shard, sizes_V, recipe.pack.salt)
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


def _recipe(manifest: Manifest, path: Path) -> Recipe:
    """That the corpus was built by: packing and mixture are as it says."""
    try:
        recipe = parse(Recipe, manifest.recipe)
    except ConfigError as e:
        raise ManifestError(
            f"{path}: its recipe is damaged, or of another version of jaxlm: {e}; {REMEDY}"
        ) from None
    mixture = in_manifest(recipe.mixture, source_weights(recipe))
    if (manifest.packing, manifest.mixture) != (recipe.pack.method, mixture):
        raise ManifestError(f"{path}: packing or mixture are not those of its recipe; {REMEDY}")
    return recipe


def _verify_listed(manifest: Manifest, path: Path, recipe: Recipe) -> None:
    """All shards that are counted, each once and in order."""
    for split in get_args(Split):
        listed = manifest.sources(split)
        for name, shards in listed.items():
            paths = [shard.path for shard in shards]
            if paths != sorted(set(paths)):
                raise ManifestError(
                    f"{path}: lists shards of {name} ({split}) twice or out of order; {REMEDY}"
                )
        for source in recipe.sources:
            here = [s for n in listed if recipe_source(n) == source.name for s in listed[n]]
            found = {"shards": len(here)}
            for key in ("documents", "chunks", "tokens"):
                found[key] = sum(getattr(shard, key) for shard in here)
            try:
                counts = {key: manifest.counts[source.name][split][key] for key in found}
            except (KeyError, TypeError):
                counts = {}
            if found != counts:
                raise ManifestError(
                    f"{path}: lists of source {source.name} ({split}) {found}, its counts say "
                    f"{counts}; {REMEDY}"
                )


def _piece_sizes(manifest: Manifest, workdir: Path) -> np.ndarray | None:
    """int32[V]: bytes of text that each id stands for; None where ids alone do not tell."""
    path = workdir / manifest.tokenizer
    try:
        tokenizer = open_tokenizer(path)
    except TokenizerError as e:
        raise ManifestError(f"{e}; if it was damaged, {REMEDY}") from None
    found = (tokenizer.hash(), tokenizer.vocab_size, tokenizer.bos_id, tokenizer.pad_id)
    made = (manifest.tokenizer_hash, manifest.vocab_size, manifest.bos_id, manifest.pad_id)
    if found != made:
        shown = "a tokenizer of hash {} with {} pieces, BOS {} and PAD {}"
        raise ManifestError(
            f"{path}: {shown.format(*found)}, the shards were made with {shown.format(*made)}; "
            f"{REMEDY}"
        )
    spelling = tokenizer.spelling()
    return None if spelling is None else np.diff(spelling.starts).astype(np.int32)


def _verify_shard(
    manifest: Manifest, workdir: Path, shard: Shard, sizes_V: np.ndarray | None, salt: str
) -> None:
    """`Damage` says what differs."""
    records = workdir / shard.path
    table = records.with_name(TABLE)
    _verify_file(records, shard.file_bytes, shard.sha256)
    _verify_file(table, shard.table_bytes, shard.table_sha256)
    stream = read_stream(records, manifest, shard.chunks, sizes_V)
    _verify_table(table, shard, stream, salt)
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


def _verify_table(path: Path, shard: Shard, stream: Stream, salt: str) -> None:
    """Each piece starts at a BOS and is as long as what follows it; those of a document are all
    of it. Keys are by the recipe's salt, and all is of the shard's source, type and split."""
    constant = {
        "shard": path.parent.name,
        "source": recipe_source(shard.source),
        "type": shard.type,
        "split": shard.split,
    }
    numbers = ("start", "tokens", "skip")
    names = [*constant, "key", "id", *numbers]
    table = pq.read_table(path, columns=names, read_dictionary=list(constant))
    start_P, tokens_P, skip_P = (table[name].to_numpy() for name in numbers)
    for name, expected in constant.items():
        found = table[name].unique().to_pylist()
        if found != [expected]:
            raise Damage(f"{path}: is of the {name} {found}, the manifest says {expected!r}")
    if not path.parent.name.startswith(f"{shard.source}.{shard.split}-"):
        raise Damage(f"{path}: the manifest says {shard.source!r}, another bucket of its source")
    keys = [order_key(id, salt) for id in table["id"].to_pylist()]
    if not np.array_equal(table["key"].to_numpy(), np.array(keys, np.uint64)):
        raise Damage(f"{path}: keys are not those of config.pack.salt={salt!r}")
    if not np.array_equal(stream.start_P, start_P):
        raise Damage(f"{path}: documents do not start where the records have a BOS")
    if not np.array_equal(stream.tokens_P, tokens_P):
        raise Damage(f"{path}: documents are not as long as in the records")
    id_P2 = words(table["id"])
    order = np.lexsort((skip_P, id_P2[:, 1], id_P2[:, 0]))
    id_P2, skip_P, end_P = id_P2[order], skip_P[order], (skip_P + tokens_P)[order]
    continues_P = np.append(False, (id_P2[1:] == id_P2[:-1]).all(axis=1))
    if (skip_P != np.where(continues_P, np.append(0, end_P[:-1]), 0)).any():
        raise Damage(f"{path}: the pieces of a document do not follow each other")
    for what, found, expected in (
        ("documents", np.count_nonzero(~continues_P), shard.documents),
        ("tokens", tokens_P.sum(), shard.tokens),
    ):
        if found != expected:
            raise Damage(f"{path}: {found} {what}, the manifest says {expected}")
