"""The dropped stage: every document that did not stay, and why, as people may see it.

<workdir>/dropped/<partition>/dropped.parquet    schema `drops.SCHEMA`, in the order of the stages
                              samples.json       a few of each rule for the report

The stages before it keep the first characters of what they drop as they are; here, private data in
them is masked, and nothing else of what those stages dropped is shown to anyone.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from data_tools.drops import SCHEMA, TABLE
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.scrub import VERSION, Scrubber
from data_tools.row_groups import GrowingTable, row_groups
from data_tools.samples import SAMPLE_CHARACTERS, first
from data_tools.stage import Partition, Report, Stage

SHOWN_CHARACTERS = 1_000
"""Of each document's text."""

type Row = dict[str, Any]
"""Of `SCHEMA`."""


def dropped_partition(partition: Partition[PrivacyConfig], out: Path) -> Report:
    """Writes dropped.parquet and samples.json, unless nothing was dropped.

    The config is `of` the source's type.
    """
    scrubber = Scrubber(partition.config, None)
    samples: dict[str, list[Row]] = defaultdict(list)
    with GrowingTable(out / TABLE, SCHEMA) as table:
        for group in row_groups(partition.inputs["dropped"], SCHEMA.names):
            for row in group.to_pylist():
                row["excerpt"] = scrubber.excerpt(row["excerpt"], SHOWN_CHARACTERS)
                row["detail"] = scrubber.mask(row["detail"])
                table.add(row)
                rule = row["rule"]
                samples[rule] = first([*samples[rule], row], lambda r: r["id"])
    if samples:
        rows = [_sample(row) for _, rows in sorted(samples.items()) for row in rows]
        (out / "samples.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return {}


def _sample(row: Row) -> Row:
    return row | {"id": row["id"].hex(), "excerpt": row["excerpt"][:SAMPLE_CHARACTERS]}


DROPPED = Stage("dropped", f"3; {VERSION}", dropped_partition)
