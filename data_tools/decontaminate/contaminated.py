"""Documents that hold text of evaluation sets: found by hashes of runs, confirmed by the runs."""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.decontaminate.config import DecontaminateConfig
from data_tools.decontaminate.evaluation import RUNS, set_partition, spelled_runs
from data_tools.dedup.index import row_groups
from data_tools.dedup.shingles import batches
from data_tools.dedup.units import VERSION, grams, units
from data_tools.drops import VERDICTS
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
    slice = ContaminatedConfig(config.words, config.characters, config.least, config.share)
    return run(
        CONTAMINATED,
        [Partition(name, config, {"documents": d} | inputs) for name, d in documents if tasks],
    )
