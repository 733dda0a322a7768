"""Boilerplate of a corpus: lines in many documents of many sites, or in a share of one site.

Two stages, so that no process holds the lines of the whole corpus. `boilerplate_counts` counts the
lines of each partition of documents, into buckets by hash (count.py); `boilerplate` decides on the
lines of one bucket and writes, for each partition of documents, what is to be removed there
(decide.py). No text is copied for it.
"""

from collections.abc import Mapping, Sequence

from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.boilerplate.count import COUNT, counts_name, lines_name
from data_tools.boilerplate.decide import DECIDE
from data_tools.stage import Input, Partition, Run, StageResult


def find(
    run: Run,
    documents: Sequence[tuple[str, Mapping[str, tuple[Input, ...]]]],
    config: BoilerplateConfig,
) -> StageResult:
    """What `remove.Boilerplate` takes: `about(partition)` of the result.

    `documents`: (partition, its tables by role: "documents", and "verdicts" about them), of the
    sources whose type is in `config.types`. Each partition of the result also has lines.parquet,
    with the lines found (`decide.FOUND`), the most frequent first.
    """
    counts = run(COUNT, [Partition(n, config.counting, inputs) for n, inputs in documents])
    sites = tuple(i for c in counts.commits for i in c.input("sites.parquet"))
    partitions = []
    for bucket in range(config.buckets):
        inputs = {
            "counts": tuple(i for c in counts.commits for i in c.input(counts_name(bucket))),
            "lines": tuple(i for c in counts.commits for i in c.input(lines_name(bucket))),
            "sites": sites,
        }
        if inputs["counts"]:
            partitions.append(Partition(f"bucket-{bucket:05d}", config.thresholds, inputs))
    return run(DECIDE, partitions)
