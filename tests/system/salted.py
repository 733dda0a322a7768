"""The salted corpus, built by the command, and what became of each document."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]


class Kept(NamedTuple):
    """What a verdict says that stays instead."""

    id: bytes
    similarity: float


@dataclass(frozen=True)
class Built:
    """A corpus that was built up to near dedup."""

    out: Path
    truth: Sequence[Mapping[str, Any]]
    ids: Mapping[tuple[str, str], bytes]
    """(Source, name) -> document."""
    sources: Mapping[bytes, str]
    cleaned: Mapping[bytes, str]
    """Prose without boilerplate, before privacy."""
    texts: Mapping[bytes, str]
    """As near dedup saw them."""
    exact: Mapping[bytes, bytes]
    """Copy -> what stays of it."""
    near: Mapping[bytes, Kept]
    """Near duplicate -> what stays of it."""
    output: str
    """Of the command."""

    def salts(self, name: str) -> list[Mapping[str, Any]]:
        """The truth about one kind of salt."""
        found = [t for t in self.truth if t["salt"] == name]
        assert found, name
        return found

    def id(self, salt: Mapping[str, Any]) -> bytes:
        """The document of a salt, or of its `of`."""
        return self.ids[salt["source"], salt["name"]]

    def survivor(self, id: bytes) -> bytes:
        """The document itself, or the one that stays instead of it."""
        id = self.exact.get(id, id)
        return self.near[id].id if id in self.near else id

    def table(self, stage: str, name: str) -> Iterator[dict[str, Any]]:
        """The rows of all tables of that name."""
        for path in sorted((self.out / "stages" / stage).glob(f"*/{name}.parquet")):
            yield from pq.read_table(path).to_pylist()


def make(out: Path, cache: Path, megabytes: float) -> Mapping[str, Any]:
    """Writes the raw files; returns the inventory."""
    command = [sys.executable, "-m", "bench.salted", f"--out={out}", f"--cache={cache}"]
    done = subprocess.run(
        [*command, f"--megabytes={megabytes}"], cwd=ROOT, capture_output=True, text=True
    )
    assert (out / "inventory.json").is_file(), done.stderr
    return json.loads((out / "inventory.json").read_text(encoding="utf-8"))


def build(out: Path) -> Built:
    """Runs `python -m data_tools near` with the corpus's own recipe, of two workers."""
    command = [sys.executable, "-m", "data_tools", "near", f"--config={out / 'recipe.json'}"]
    done = subprocess.run(
        [*command, f"--workdir={out}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (out / "truth.jsonl").read_text(encoding="utf-8").split("\n")
    ids, sources = {}, {}
    for row in _rows(out, "read", ["id", "source", "path", "meta"]):
        meta = json.loads(row["meta"])
        ids[row["source"], meta.get("name") or meta.get("url") or row["path"]] = row["id"]
        sources[row["id"]] = row["source"]
    exact, near = dict(_verdicts(out, "exact_duplicates")), dict(_verdicts(out, "near_duplicates"))
    return Built(
        out=out,
        truth=[json.loads(line) for line in lines if line],
        ids=ids,
        sources=sources,
        cleaned={
            r["id"]: r["text"]
            for r in _rows(out, "clean", ["id", "text", "type"])
            if r["type"] != "code"
        },
        texts={r["id"]: r["text"] for r in _rows(out, "privacy", ["id", "text"])},
        exact={id: kept.id for id, kept in exact.items()},
        near=near,
        output=done.stdout,
    )


def _rows(out: Path, stage: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    for path in sorted((out / "stages" / stage).glob("*/documents.parquet")):
        yield from pq.read_table(path, columns=columns).to_pylist()


def _verdicts(out: Path, stage: str) -> Iterator[tuple[bytes, Kept]]:
    """What each verdict names, from its detail."""
    for path in sorted((out / "stages" / stage).glob("*/*-?????.parquet")):
        for row in pq.read_table(path).to_pylist():
            kept = re.search(r"document ([0-9a-f]{32})", row["detail"])
            similarity = re.search(r"similarity ([0-9.]+)", row["detail"])
            assert kept, row
            yield row["id"], Kept(bytes.fromhex(kept[1]), float(similarity[1] if similarity else 1))
