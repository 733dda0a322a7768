"""The dropped stage: every document that did not stay, and why, as people may see it.

<workdir>/dropped/<partition>/dropped.parquet    schema `drops.SCHEMA`, sorted by id
                              samples.json       a few of them for the report

The stages before it keep the first characters of what they drop as they are; here, private data in
them is masked, and nothing else of the work directory's stages is shown to anyone.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.drops import SCHEMA
from data_tools.privacy.partition import ScrubConfig
from data_tools.privacy.scrub import Scrubber
from data_tools.stage import Partition, Report, Stage

SAMPLES = 5
"""Documents a rule and partition that go into the report: those with the smallest ids, which are
hashes."""
SAMPLE_CHARACTERS = 400


def dropped_partition(partition: Partition[ScrubConfig], out: Path) -> Report:
    """Writes dropped.parquet and samples.json, unless nothing was dropped."""
    scrubber = Scrubber(partition.config.privacy, partition.config.type, None)
    rows: list[dict[str, Any]] = []
    for file in partition.inputs["dropped"]:
        for row in pq.read_table(file.path).to_pylist():
            row["excerpt"] = scrubber.mask(row["excerpt"])
            row["detail"] = scrubber.mask(row["detail"])
            rows.append(row)
    rows.sort(key=lambda row: row["id"])
    if rows:
        table = pa.Table.from_pylist(rows, SCHEMA)
        pq.write_table(table, out / "dropped.parquet", compression="zstd")
        samples = json.dumps(_samples(rows), ensure_ascii=False)
        (out / "samples.json").write_text(samples, encoding="utf-8")
    return {}


def _samples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    taken: Counter[str] = Counter()
    chosen = []
    for row in rows:
        taken[row["rule"]] += 1
        if taken[row["rule"]] <= SAMPLES:
            excerpt = row["excerpt"][:SAMPLE_CHARACTERS]
            chosen.append(row | {"id": row["id"].hex(), "excerpt": excerpt})
    return chosen


DROPPED = Stage("dropped", "2", dropped_partition)
