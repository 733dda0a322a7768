"""What became of one document, stage by stage, as a finished build left it on disk."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_tools.boilerplate.remove import Boilerplate
from data_tools.document import DOCUMENTS, DataError, Document
from data_tools.drops import TABLE as DROPPED
from data_tools.privacy.scrub import Scrubbed, Scrubber
from data_tools.recipe import Recipe
from data_tools.report.markup import CONTROLS
from data_tools.samples import SAMPLE_CHARACTERS
from data_tools.stage import Input
from jaxlm.data import manifest
from jaxlm.data.documents import Documents
from jaxlm.schema import parse

OTHERS = 10
"""Documents of a cluster that are named with their similarity to the one that stays."""

UNDO = "add {id!r} to `restored` in the recipe and build again"
REMEDIES = {
    "privacy": "not by its id: change the policy in config.privacy and build again",
    "round_trip": "not by its id: the tokenizer cannot give this text back; change the raw file",
}
"""Rule -> how to undo it, where that is not `UNDO`."""


def explain(workdir: Path, id: str) -> Iterator[str]:
    """Lines about the document with this id (32 hex digits), private data in them masked.

    `DataError` for what is no id, for one that the build does not know, and for a directory
    without a finished build.
    """
    if not re.fullmatch("[0-9a-f]{32}", id):
        raise DataError(f"{id!r} is no document id; write its 32 hex digits, as in the report")
    recipe = _recipe(workdir)
    for directory in _partitions(workdir):
        row = _row(directory / DOCUMENTS, id)
        if row is not None:
            return _Trail(workdir, recipe, directory.name, _document(row)).lines()
    raise DataError(
        f"{id}: no document of the build in {workdir} has this id; "
        "explain --path=FILE lists those of a raw file"
    )


def documents_of(workdir: Path, path: str) -> list[str]:
    """A line for each document of a raw file: its id, its source, its offset in the file.

    `path` is below its source's root, as in the report. `DataError` when no document is from it.
    """
    _recipe(workdir)
    columns = ["id", "source", "offset"]
    lines = []
    for directory in _partitions(workdir):
        table = pq.read_table(
            directory / DOCUMENTS, columns=columns, filters=[("path", "==", path)]
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
            self._say("restored", "by the recipe, against every rule and duplicate")
        stages = (self._clean, self._privacy, self._near, self._shard)
        all(stage() for stage in stages)  # to the first that it does not leave
        text = self._scrubber.excerpt(self._document.text, SAMPLE_CHARACTERS)
        self._say("text", "as it was last, its beginning, private data masked:")
        self._lines += [f"    {line}" for line in text.splitlines()]
        # a terminal obeys control characters
        return (line.translate(CONTROLS) for line in self._lines)

    def _say(self, what: str, words: str) -> None:
        self._lines.append(f"{what + ':':13}{words}")

    def _clean(self) -> bool:
        before = self._document
        if before.type in self._recipe.boilerplate.types:
            found = self._workdir.glob(f"stages/boilerplate/*/{self._partition}.parquet")
            tables = [Input(path, "", "") for path in found]
            _, count = Boilerplate(self._recipe.boilerplate.removal, tables)(before)
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
        """The verdicts of decontamination and near dedup: the tokenize stage carries them out."""
        stays = self._stays("tokenize")
        path = self._workdir / "clusters.parquet"
        mine = pq.read_table(path, filters=pc.field("id") == _scalar(self._id)).to_pylist()
        for row in mine:
            cluster = pc.field("cluster") == pa.scalar(row["cluster"], pa.binary(16))
            rows = pq.read_table(path, filters=cluster).to_pylist()
            gone = [f"{r['id'].hex()} ({r['similarity']:.3f})" for r in rows if not r["kept"]]
            more = f" and {len(gone) - OTHERS} more" if len(gone) > OTHERS else ""
            self._say(
                "cluster", f"{row['cluster'].hex()} stays for {', '.join(gone[:OTHERS])}{more}"
            )
        return stays

    def _shard(self) -> bool:
        corpus = manifest.load(self._workdir / "manifest.json")
        entry = Documents(self._workdir, corpus).by_id(self._id)
        assert entry is not None, f"{self._id} is neither dropped nor in a shard"
        self._say("kept", f"{entry.tokens:,} tokens, split {entry.split}")
        self._say("shard", f"{entry.shard}, token {entry.start:,} (its BOS)")
        return True

    def _stays(self, stage: str) -> bool:
        """Whether a stage kept the document: then it is, from now on, as that stage wrote it."""
        directory = self._workdir / "stages" / stage / self._partition
        dropped = _row(directory / DROPPED, self._id)
        if dropped is None:
            row = _row(directory / DOCUMENTS, self._id)
            self._document = self._document if row is None else _document(row)
            return True
        rule, detail = dropped["rule"], self._scrubber.mask(dropped["detail"])
        self._say("dropped", f"by {rule}: {detail}")
        self._say("undo", REMEDIES.get(rule, UNDO).format(id=self._id))
        return False


def _size(document: Document) -> str:
    return f"{len(document.text):,} characters, {len(document.text.encode()):,} bytes"


def _recipe(workdir: Path) -> Recipe:
    path = workdir / "report.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"--workdir={workdir}: no finished build is there ({path.name} is missing); "
            "python -m data_tools build makes one"
        ) from None
    return parse(Recipe, data["recipe"])


def _partitions(workdir: Path) -> list[Path]:
    return sorted((workdir / "stages/read").iterdir())


def _scalar(id: str) -> pa.Scalar:
    return pa.scalar(bytes.fromhex(id), pa.binary(16))


def _row(path: Path, id: str) -> dict[str, Any] | None:
    """The row of this id, one row group in memory; None when there is none, or no file."""
    if not path.is_file():
        return None
    with pq.ParquetFile(path) as table:
        for group in range(table.num_row_groups):
            at = pc.index(table.read_row_group(group, columns=["id"])["id"], _scalar(id)).as_py()
            if at >= 0:
                return table.read_row_group(group).slice(at, 1).to_pylist()[0]
    return None


def _document(row: dict[str, Any]) -> Document:
    return Document(**row | {"meta": json.loads(row["meta"])})
