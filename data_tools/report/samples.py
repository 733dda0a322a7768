"""Documents that a rule dropped beside documents that passed it, masked in their stages."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import pyarrow.parquet as pq

from data_tools.report.summary import commits
from data_tools.samples import SAMPLES, first
from data_tools.stage import StageResult

type Row = dict[str, Any]


def samples(results: Mapping[str, StageResult]) -> dict[str, dict[str, list[Row]]]:
    """Rule -> a few documents that it dropped, and kept ones of the same sources.

    They are those with the smallest hashes, the sources taking turns: no choice of ours.
    """
    dropped: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for commit in commits(results, "dropped"):
        for file in commit.input("samples.json"):
            for row in json.loads(file.path.read_text(encoding="utf-8")):
                rows = dropped[row["rule"]][row["source"]]
                rows[:] = _first([*rows, row])  # no more in memory, of however many partitions
    kept = _kept(results)
    found = {}
    for rule, by_source in sorted(dropped.items()):
        left = _take_turns(by_source.values())
        right = _take_turns(kept[source] for source in by_source)
        found[rule] = {"dropped": left, "kept": right[: len(left)]}
    return found


def _kept(results: Mapping[str, StageResult]) -> Mapping[str, list[Row]]:
    """Source -> samples of the privacy stage that no later one dropped."""
    later = {c.partition: c.input("dropped.parquet") for c in commits(results, "tokenize")}
    kept: dict[str, list[Row]] = defaultdict(list)
    for commit in commits(results, "privacy"):
        tables = [pq.read_table(i.path, columns=["id"]) for i in later[commit.partition]]
        gone = {id.hex() for table in tables for id in table["id"].to_pylist()}
        for row in commit.report["samples"]:
            if row["id"] not in gone:
                kept[row["source"]].append(row)
    return kept


def _first(rows: Iterable[Row]) -> list[Row]:
    return first(rows, lambda row: row["id"])


def _take_turns(groups: Iterable[list[Row]]) -> list[Row]:
    ordered = map(_first, groups)
    return [row for turn in zip_longest(*ordered) for row in turn if row is not None][:SAMPLES]
