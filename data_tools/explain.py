"""What became of one document, stage by stage, as a finished build left it on disk."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_tools.boilerplate.remove import Boilerplate
from data_tools.document import DOCUMENTS, DataError, Document
from data_tools.drops import TABLE as DROPPED
from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.pack.shuffle import EXCLUDED
from data_tools.privacy.scrub import Scrubbed, Scrubber
from data_tools.recipe import Recipe
from data_tools.report.markup import CONTROLS
from data_tools.samples import SAMPLE_CHARACTERS
from data_tools.stage import Commit, Input, committed
from data_tools.state import state
from jaxlm.data import manifest
from jaxlm.data.documents import Documents, Entry, table_path
from jaxlm.data.manifest import Manifest
from jaxlm.schema import parse

OTHERS = 10
"""Documents of a cluster that are named with their similarity to the one that stays."""

IN_LINE = {**CONTROLS, ord("\n"): 0x240A, **dict.fromkeys(range(128, 160), 0xFFFD)}
"""A terminal obeys control characters, and the name of a file may hold a newline."""

UNDO = "add {id!r} to `restored` in the recipe and build again"
UNDO_EXCLUSION = "not by its id: change config.pack.exclude and build again, which packs anew"
REMEDIES = {
    "privacy": "not by its id: change the policy in config.privacy and build again",
    "round_trip": "not by its id: the tokenizer cannot give this text back; change the raw file",
    HELDOUT_DUPLICATE: "not by its id: it says what a held-out document says, and training must "
    "not see that; change config.heldout and build again",
}
"""Rule -> how to undo it, where that is not `UNDO`."""


def explain(workdir: Path, id: str) -> Iterator[str]:
    """Lines about the document with this id (32 hex digits), private data in them masked.

    `DataError` for what is no id, for one that the build does not know, and for a directory
    without a finished build, with one that has been changed since, or with damage;
    `ManifestError` for damage of the manifest or a document table.
    """
    id = id.lower()
    if not re.fullmatch("[0-9a-f]{32}", id):
        raise DataError(f"{id!r} is no document id; write its 32 hex digits, as in the report")
    recipe = _recipe(workdir)
    for commit in _partitions(workdir):
        document = _document(commit.directory, id)
        if document is not None:
            return _Trail(workdir, recipe, commit.partition, document).lines()
    raise DataError(
        f"{id}: no document of the build in {workdir} has this id; "
        "explain --path=FILE lists those of a raw file"
    )


def documents_of(workdir: Path, path: str) -> list[str]:
    """A line for each document of a raw file: its id, its source, its offset in the file.

    `path` is below its source's root, as in the report. `DataError` when no document is from it,
    and as of `explain`.
    """
    _recipe(workdir)
    try:
        name = os.fsencode(path).decode()  # the locale may have taken it for something else
    except UnicodeError:
        raise DataError(
            f"--path={path!r}: is not UTF-8, as all names of read files are; "
            "write it as in the report"
        ) from None
    columns = ["id", "source", "offset"]
    lines = []
    for commit in _partitions(workdir):
        with _reading(commit.directory):
            table = pq.read_table(
                commit.directory / DOCUMENTS, columns=columns, filters=[("path", "==", name)]
            )
            lines += [f"{r['id'].hex()} {r['source']} {r['offset']}" for r in table.to_pylist()]
    if not lines:
        raise DataError(
            f"--path={path}: no document comes from a file of this name; "
            "write it as it lies below the root of its source"
        )
    return lines


class _Trail:
    """One document on its way; each method tells of a stage, and returns whether it goes on."""

    def __init__(self, workdir: Path, recipe: Recipe, partition: str, document: Document):
        self._workdir, self._recipe, self._partition = workdir, recipe, partition
        self._document, self._id = document, document.id.hex()
        # any key does: nothing that is hashed here is shown
        self._scrubber = Scrubber(recipe.privacy.of(document.type), b"no secret")
        self._lines: list[str] = []

    def lines(self) -> Iterator[str]:
        """All that there is to say."""
        document = self._document
        self._say("document", self._id)
        self._say("source", f"{document.source} ({document.type}), partition {self._partition}")
        self._say("file", f"{document.path}, offset {document.offset}")
        self._say("read", _size(document))
        if self._id in self._recipe.restored:
            self._say("restored", "by the recipe, against rules and duplicates")
        stages = (self._clean, self._privacy, self._near, self._exclude, self._shard)
        all(stage() for stage in stages)  # to the first that it does not leave
        text = self._scrubber.excerpt(self._document.text, SAMPLE_CHARACTERS)
        self._say("text", "as it was last, its beginning, private data masked:")
        self._lines += [f"    {line}" for line in text.splitlines()]
        return (line.translate(IN_LINE) for line in self._lines)

    def _say(self, what: str, words: str) -> None:
        self._lines.append(f"{what + ':':13}{words}")

    def _clean(self) -> bool:
        before = self._document
        if before.type in self._recipe.boilerplate.types:
            stage = self._workdir / "stages/boilerplate"
            tables = [Input(p, "", "") for p in stage.glob(f"*/{self._partition}.parquet")]
            with _reading(stage):
                remove = Boilerplate(self._recipe.boilerplate.removal, tables)
            _, count = remove(before)
            self._say("boilerplate", f"{count} lines")
        if not self._stays("clean"):
            return False
        after = self._document
        change = "as it was" if after.text == before.text else f"changed: {_size(after)}"
        faults = f", broke {after.meta['faults']}" if "faults" in after.meta else ""
        self._say("clean", f"{change}; quality {after.quality:.2f}{faults}")
        return True

    def _privacy(self) -> bool:
        result = self._scrubber.scrub(self._document.text)
        if not self._stays("privacy"):
            return False
        counts = result.counts if isinstance(result, Scrubbed) else {}
        found = [f"{e} {n} ({self._scrubber.policies[e]})" for e, n in sorted(counts.items())]
        self._say("privacy", ", ".join(found) or "nothing found")
        return True

    def _near(self) -> bool:
        """The verdict of near dedup, which the tokenize stage carries out, and the cluster."""
        stays = self._stays("tokenize")
        for row in self._members("id", bytes.fromhex(self._id)):
            rows = self._members("cluster", row["cluster"])
            gone = [f"{r['id'].hex()} ({r['similarity']:.3f})" for r in rows if not r["kept"]]
            more = f" and {len(gone) - OTHERS} more" if len(gone) > OTHERS else ""
            self._say(
                "cluster", f"{row['cluster'].hex()} stays for {', '.join(gone[:OTHERS])}{more}"
            )
        return stays

    def _members(self, column: str, value: bytes) -> list[dict[str, Any]]:
        """Rows of clusters.parquet."""
        path = self._workdir / "clusters.parquet"
        with _reading(path):
            matches = pc.field(column) == pa.scalar(value, pa.binary(16))
            return pq.read_table(path, filters=matches).to_pylist()

    def _exclude(self) -> bool:
        """What was left out of the shards after it had been tokenized."""
        excluded = _row(self._workdir / "stages/shuffle" / self._partition, EXCLUDED, self._id)
        if excluded is None:
            return True
        self._say("excluded", f"by {excluded['rule']}: {excluded['detail']}")
        self._say("undo", UNDO_EXCLUSION)
        return False

    def _shard(self) -> bool:
        corpus = manifest.load(self._workdir / "manifest.json")
        pieces = self._pieces(corpus)
        tokens, shard, split = sum(p.tokens for p in pieces), pieces[0].shard, pieces[0].split
        source = next(s.source for s in corpus.shards if Path(s.path).parent.name == shard)
        self._say("kept", f"{tokens:,} tokens, split {split}")
        self._say("shard", f"{shard} of source {source}, {corpus.packing} packing")
        for piece in pieces:
            last = piece.start + piece.tokens
            chunks = {piece.start // corpus.chunk_tokens, (last - 1) // corpus.chunk_tokens}
            part = f"; {piece.skip:,} to {piece.skip + piece.tokens - 1:,} of the document"
            self._say(
                "chunk",
                f"{' to '.join(f'{n:,}' for n in sorted(chunks))}: tokens {piece.start:,} (its "
                f"BOS) to {last:,} of the shard" + (part if len(pieces) > 1 else ""),
            )
        return True

    def _pieces(self, corpus: Manifest) -> list[Entry]:
        """Where it lies: best_fit packing cuts a long document."""
        pieces = Documents(corpus, partial(table_path, self._workdir)).by_id(self._id)
        if not pieces:
            raise _damaged(
                self._workdir / "shards",
                f"document {self._id}, which nothing dropped, is not there",
            )
        return pieces

    def _stays(self, stage: str) -> bool:
        """Whether a stage kept the document: then it is, from now on, as that stage wrote it."""
        directory = self._workdir / "stages" / stage / self._partition
        dropped = _row(directory, DROPPED, self._id)
        if dropped is None:
            self._document = _document(directory, self._id) or self._document
            return True
        rule, detail = dropped["rule"], self._scrubber.mask(dropped["detail"])
        self._say("dropped", f"by {rule}: {detail}")
        self._say("undo", REMEDIES.get(rule, UNDO).format(id=self._id))
        return False


def _size(document: Document) -> str:
    return f"{len(document.text):,} characters, {len(document.text.encode()):,} bytes"


def _recipe(workdir: Path) -> Recipe:
    """Of the build that the report tells of, which must be what lies there."""
    path = workdir / "report.json"
    if not path.exists():
        raise DataError(
            f"--workdir={workdir}: no finished build is there ({path.name} is missing); "
            "python -m data_tools build makes one"
        )
    with _reading(path):
        data = json.loads(path.read_text(encoding="utf-8"))
        recipe, reported = parse(Recipe, data["recipe"]), data["state"]
    if reported != state(workdir):
        raise DataError(
            f"--workdir={workdir}: what lies there has changed since the report was written; "
            "run the same build again"
        )
    return recipe


def _partitions(workdir: Path) -> list[Commit]:
    """As they were read."""
    found = map(committed, sorted((workdir / "stages/read").iterdir()))
    return [commit for commit in found if commit is not None]


def _row(directory: Path, table: str, id: str) -> dict[str, Any] | None:
    """A partition's row of this id, one row group in memory; None when it has none, or no table."""
    path, value = directory / table, pa.scalar(bytes.fromhex(id), pa.binary(16))
    if not path.is_file():
        return None
    with _reading(directory), pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            at = pc.index(file.read_row_group(group, columns=["id"])["id"], value).as_py()
            if at >= 0:
                return file.read_row_group(group).slice(at, 1).to_pylist()[0]
    return None


def _document(directory: Path, id: str) -> Document | None:
    row = _row(directory, DOCUMENTS, id)
    if row is None:
        return None
    with _reading(directory):
        return Document(**row | {"meta": json.loads(row["meta"])})


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What cannot be read is damage. `path`: what a build makes again when it is gone."""
    try:
        yield
    except PermissionError:
        raise
    except (OSError, pa.ArrowException, ValueError, TypeError, LookupError) as e:
        raise _damaged(path, f"{type(e).__name__}: {' '.join(str(e).split())}") from e


def _damaged(path: Path, how: str) -> DataError:
    return DataError(
        f"{path}: is damaged ({how}); remove it and run the same build again, which makes it anew"
    )
