"""Documents that hold text of evaluation sets: found by hashes of runs, confirmed by the runs."""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.decontaminate.config import DecontaminateConfig
from data_tools.decontaminate.evaluation import RUNS, set_partition, spelled_runs
from data_tools.dedup.shingles import batches
from data_tools.dedup.units import VERSION, grams, units
from data_tools.drops import VERDICTS
from data_tools.row_groups import row_groups
from data_tools.stage import Input, Partition, Report, Run, Stage, StageResult

type Documents = Sequence[tuple[str, tuple[Input, ...]]]
"""(Name of a partition, its tables of documents)."""


def find(
    run: Run,
    documents: Documents,
    config: DecontaminateConfig,
    sets: Mapping[str, tuple[Input, ...]],
) -> StageResult:
    """Verdicts (`about(partition)`) on the documents that hold text of `sets`: name -> its file.

    Runs nothing when there are no sets.
    """
    tasks = [set_partition(one, config, *sets[one.name]) for one in config.sets]
    found = run(RUNS, tasks)
    inputs = {
        role: tuple(i for c in found.commits for i in c.input(name))
        for role, name in (("hashes", "hashes.npy"), ("texts", "texts.npy"), ("set", "texts.json"))
    }
    search = replace(config, sets=())
    return run(
        CONTAMINATED,
        [Partition(name, search, {"documents": d} | inputs) for name, d in documents if tasks],
    )


@dataclass(frozen=True)
class _Evaluation:
    """All sets as one: G runs of T texts."""

    hash_G: np.ndarray
    """uint64, sorted."""
    text_G: np.ndarray
    """int64: which text has the run."""
    names: list[str]
    """Of each text: its set and its place there."""
    sets: list[str]
    """Of each text: its set."""
    texts: list[str]
    runs_T: np.ndarray
    """Different runs of each text."""
    present: np.ndarray
    """bool, by the first bits of a hash: whether any run has them. Most hashes of a document end
    here, before the search."""

    @property
    def shift(self) -> np.uint64:
        """Takes a hash to its place in `present`."""
        return np.uint64(64 - (len(self.present).bit_length() - 1))


def contaminated_partition(partition: Partition[DecontaminateConfig], out: Path) -> Report:
    """Writes verdicts, if any; needs 50 bytes a run of the sets, and one row group of text."""
    inputs = partition.inputs
    evaluation = _load(inputs["hashes"], inputs["texts"], inputs["set"])
    rows = []
    counts: Counter[str] = Counter()
    for group in row_groups(inputs["documents"], ("id", "text")):
        ids, texts = group["id"].to_pylist(), group["text"].to_pylist()
        for batch in batches([len(text) for text in texts]):
            found = _contaminated(texts[batch], evaluation, partition.config)
            for place, (text, detail) in found.items():
                rows.append((ids[batch][place], "contaminated", detail))
                counts[evaluation.sets[text]] += 1
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.table(columns, VERDICTS)
        pq.write_table(table, out / f"{partition.name}.parquet", compression="zstd")
    return {"contaminated": dict(counts)}


@functools.lru_cache(1)
def _load(
    hashes: tuple[Input, ...], texts: tuple[Input, ...], sets: tuple[Input, ...]
) -> _Evaluation:
    places = [json.loads(file.path.read_text(encoding="utf-8")) for file in sets]
    first = np.cumsum([0, *map(len, places)])
    hash_G = np.concatenate([np.load(file.path) for file in hashes])
    text_G = np.concatenate(
        [np.load(file.path).astype(np.int64) + n for file, n in zip(texts, first, strict=False)]
    )
    order = np.argsort(hash_G, kind="stable")
    hash_G, text_G = hash_G[order], text_G[order]
    bits = max(16, (16 * len(hash_G)).bit_length())
    present = np.zeros(1 << bits, bool)
    present[hash_G >> np.uint64(64 - bits)] = True
    return _Evaluation(
        hash_G,
        text_G,
        [f"{file.name} {p}" for file, rows in zip(sets, places, strict=True) for p, _ in rows],
        [file.name for file, rows in zip(sets, places, strict=True) for _ in rows],
        [text for rows in places for _, text in rows],
        np.bincount(text_G, minlength=first[-1]),
        present,
    )


def _contaminated(
    texts: Sequence[str], evaluation: _Evaluation, config: DecontaminateConfig
) -> dict[int, tuple[int, str]]:
    """Place among `texts` -> (text of a set that it holds most of, what it has in common)."""
    result: dict[int, tuple[int, str]] = {}
    for place, text, count in _hits(texts, evaluation, config):
        if place not in result and config.enough(count, evaluation.runs_T[text]):
            common = _confirmed(texts[place], evaluation.texts[text], config)
            if common:
                result[place] = (text, f"{evaluation.names[text]} has {common}")
    return result


def _confirmed(document: str, text: str, config: DecontaminateConfig) -> str:
    """What the two have in common, spelled out; empty when it is not enough."""
    theirs = set(spelled_runs(text, config.words, config.characters))
    ours = spelled_runs(document, config.words, config.characters)
    common = dict.fromkeys(run for run in ours if run in theirs)
    if not common or not config.enough(len(common), len(theirs)):
        return ""
    return f"{len(common)} of its {len(theirs)} runs here, the first: {next(iter(common))}"


def _hits(
    texts: Sequence[str], evaluation: _Evaluation, config: DecontaminateConfig
) -> Iterator[tuple[int, int, int]]:
    """(Place among `texts`, text of a set, different runs in common by their hashes); for each
    place the most first, then the first text."""
    found = units(texts, code=False)
    hash_U, inside_U = grams(found, config.words, config.characters)
    at = np.flatnonzero(inside_U & evaluation.present[hash_U >> evaluation.shift])
    low = np.searchsorted(evaluation.hash_G, hash_U[at])
    count = np.searchsorted(evaluation.hash_G, hash_U[at], "right") - low
    place = np.searchsorted(found.bounds, at, "right") - 1
    # each run of a document with each text of a set that has it
    ends = np.cumsum(count)
    run_H = np.arange(count.sum()) + np.repeat(low - (ends - count), count)
    place_H = np.repeat(place, count)
    size = len(evaluation.hash_G)
    different = np.unique(place_H * size + run_H)
    place_H, text_H = different // size, evaluation.text_G[different % size]
    total = len(evaluation.texts)
    pair, pair_count = np.unique(place_H * total + text_H, return_counts=True)
    for i in np.lexsort((pair, -pair_count)):
        yield int(pair[i] // total), int(pair[i] % total), int(pair_count[i])


CONTAMINATED = Stage("contaminated", f"1 {VERSION}", contaminated_partition)
