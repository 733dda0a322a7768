"""Tokenized documents, and all stages from them to a corpus."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python.array_record_module import ArrayRecordReader

from data_tools import engines
from data_tools.document import Document
from data_tools.heldout import HeldoutConfig
from data_tools.pack.config import PackConfig
from data_tools.pack.partition import CHUNKS, PACK
from data_tools.pack.plan import plan_shards
from data_tools.stage import Commit, Output, StageResult, run_stage
from data_tools.tokenize import SCHEMA, TOKENS, id_dtype
from jaxlm.data import manifest
from jaxlm.data.documents import TABLE

BOS, PAD = 1, 3
TYPES = {"s": "web", "t": "book"}

type Row = dict[str, Any]


def row(
    i: int,
    ids: Sequence[int],
    source: str = "s",
    quality: float = 1.0,
    faults: Sequence[str] = (),
    vocab_size: int = 1000,
) -> Row:
    """A document as `tokenize` writes it."""
    d = Document.make(f"text {i}", source, TYPES[source], "f", i, {})
    values = {name: getattr(d, name) for name in SCHEMA.names[:7]} | {"quality": quality}
    values |= {"faults": list(faults), "cluster": None}
    data = np.array(ids, id_dtype(vocab_size)).tobytes()
    return values | {"text_bytes": 2 * len(ids), "tokens": len(ids), "ids": data}


def rows(count: int, source: str = "s", longest: int = 40) -> list[Row]:
    """Documents of 1 to `longest` ids; every third has a fault, qualities are from 0 to 1."""
    rng = random.Random(f"{count} {source}")
    return [
        row(
            i,
            [rng.randrange(4, 1000) for _ in range(rng.randint(1, longest))],
            source,
            round(rng.random(), 3),
            ["mean_line_length"] if i % 3 == 0 else [],
        )
        for i in range(count)
    ]


def ids_of(row: Row) -> list[int]:
    """Its ids."""
    return np.frombuffer(row["ids"], "<u2").tolist()


class Built(NamedTuple):
    """What the stages made."""

    root: Path
    results: dict[str, StageResult]

    @property
    def shards(self) -> dict[str, Commit]:
        """By name."""
        return {c.partition: c for c in self.results["pack"].commits}

    def records(self, shard: str, dtype: str = "<u2") -> np.ndarray:
        """ids[chunks, chunk_tokens + 1]"""
        reader = ArrayRecordReader(str(self.root / "shards" / shard / CHUNKS))
        return np.stack([np.frombuffer(r, dtype) for r in reader.read_all()])

    def stream(self, shard: str, dtype: str = "<u2") -> np.ndarray:
        """Its ids, each once."""
        found = self.records(shard, dtype)
        return np.append(found[:, :-1].reshape(-1), found[-1, -1])

    def table(self, shard: str) -> list[Row]:
        """Its document table."""
        return pq.read_table(self.root / "shards" / shard / TABLE).to_pylist()

    def files(self) -> dict[str, bytes]:
        """Everything that a trainer reads."""
        found = sorted((self.root / "shards").glob("*/*"))
        return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in found if p.suffix != ".json"}


def write_tokens(root: Path, partitions: Mapping[str, Sequence[Row]]) -> list[Commit]:
    """The stage `tokenize` as if it had run; a row group for every 7 rows."""
    commits = []
    for name, table in partitions.items():
        directory = root / "stages/tokenize" / name
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / TOKENS
        pq.write_table(pa.Table.from_pylist(list(table), SCHEMA), path, row_group_size=7)
        output = {TOKENS: Output(path.stat().st_size, manifest.sha256(path))}
        commits.append(Commit(name, "", directory, output, {}, 0))
    return commits


def build(
    root: Path,
    partitions: Mapping[str, Sequence[Row]],
    pack: PackConfig | None = None,
    heldout: float = 0.0,
    vocab_size: int = 1000,
    workers: int = 1,
) -> Built:
    """Runs survey, shuffle and pack over tokenized partitions (`s-00000` is one of source s)."""
    return build_from(root, write_tokens(root, partitions), pack, heldout, vocab_size, workers)


def build_from(
    root: Path,
    tokenized: Sequence[Commit],
    pack: PackConfig | None = None,
    heldout: float = 0.0,
    vocab_size: int = 1000,
    workers: int = 1,
) -> Built:
    """The same, from the commits of `tokenize`."""
    results: dict[str, StageResult] = {}
    engine = engines.local(workers)

    def run(stage, partitions, place=None):
        place = place or root / "stages" / stage.name
        results[stage.name] = run_stage(stage, partitions, place, engine)
        return results[stage.name]

    names = dict.fromkeys(c.partition.rpartition("-")[0] for c in tokenized)
    shards = plan_shards(
        run,
        tokenized,
        {name: TYPES[name] for name in names},
        pack or PackConfig(chunk_tokens=16),
        HeldoutConfig(heldout),
        {"vocab_size": vocab_size, "bos_id": BOS, "pad_id": PAD},
    )
    try:
        run(PACK, shards, root / "shards")
    finally:
        engine.close()
    return Built(root, results)
