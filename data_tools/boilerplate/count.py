"""First stage of boilerplate: in how many documents of each site of a partition each line is.

A partition's documents are in no other partition, so these counts add up to those of the corpus.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from unicodedata import unidata_version

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.boilerplate.config import Counting
from data_tools.boilerplate.line import hash64, is_counted, lines_of, normal_form
from data_tools.boilerplate.site import site_of
from data_tools.document import Document
from data_tools.drops import standing
from data_tools.stage import Partition, Report, Stage

LINES_AT_ONCE = 1 << 17
"""Lines of documents that are held in memory; about 60 MB."""

COUNTS = pa.schema([("line", pa.uint64()), ("site", pa.uint64()), ("documents", pa.uint32())])
LINES = pa.schema([("line", pa.uint64()), ("text", pa.string())])
SITES = pa.schema([("site", pa.uint64()), ("name", pa.string()), ("documents", pa.uint32())])


def counts_name(bucket: int) -> str:
    """Output that holds the counts of one range of line hashes; a line may be in several rows."""
    return f"counts-{bucket:05d}.parquet"


def lines_name(bucket: int) -> str:
    """Output that holds the normal forms of one range of line hashes."""
    return f"lines-{bucket:05d}.parquet"


def count_partition(partition: Partition[Counting], out: Path) -> Report:
    """Writes counts-*.parquet and lines-*.parquet, and sites.parquet with all documents of each.

    Documents that a verdict names do not count: a page that was crawled a thousand times would
    make each of its lines boilerplate.
    """
    sites: Counter[str] = Counter()
    inputs = partition.inputs
    with _Counts(partition.config.buckets, out) as counts:
        for document in standing(inputs["documents"], inputs["verdicts"]):
            if isinstance(document, Document):
                site = site_of(document)
                sites[site] += 1
                counts.add(_distinct(document.text, partition.config), hash64(site))
    names = sorted(sites)
    columns = [[hash64(n) for n in names], names, [sites[n] for n in names]]
    pq.write_table(pa.table(columns, SITES), out / "sites.parquet", compression="zstd")
    return {"documents": sites.total(), "lines": counts.total}


def _distinct(text: str, config: Counting) -> dict[int, str]:
    """Hash -> normal form of the lines of a text that are counted."""
    found = {}
    for line in lines_of(text):
        if len(line) <= config.longest:
            normal = normal_form(line)
            if is_counted(normal, config.shortest):
                found[hash64(normal)] = normal
    return found


class _Counts:
    """Adds up what it can hold, and appends that to the buckets, sorted by line."""

    def __init__(self, buckets: int, out: Path):
        self._buckets, self._out = buckets, out
        self._files = ExitStack()
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._lines: list[int] = []
        self._sites: list[int] = []
        self._texts: dict[int, str] = {}
        self.total = 0
        """Pairs of a document and a line in it."""

    def add(self, lines: dict[int, str], site: int) -> None:
        """Counts one document."""
        self.total += len(lines)
        self._lines += lines
        self._sites += [site] * len(lines)
        self._texts.update(lines)
        if len(self._lines) >= LINES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        line_N, site_N = (np.array(x, np.uint64) for x in (self._lines, self._sites))
        counts = add_up(line_N, site_N, np.ones(len(line_N), np.uint32))
        self._append(counts_name, pa.table(counts, COUNTS))
        texts = sorted(self._texts.items())
        self._append(lines_name, pa.table([[h for h, _ in texts], [t for _, t in texts]], LINES))
        for held in (self._lines, self._sites, self._texts):
            held.clear()

    def _append(self, name: Callable[[int], str], table: pa.Table) -> None:
        high_N = table["line"].to_numpy() >> np.uint64(32)
        bucket_N = (high_N * np.uint64(self._buckets)) >> np.uint64(32)
        edges = np.searchsorted(bucket_N, np.arange(self._buckets + 1, dtype=np.uint64))
        for bucket in np.unique(bucket_N):
            rows = table.slice(edges[bucket], edges[bucket + 1] - edges[bucket])
            file = name(bucket)
            if file not in self._writers:
                writer = pq.ParquetWriter(self._out / file, table.schema, compression="zstd")
                self._writers[file] = self._files.enter_context(writer)
            self._writers[file].write_table(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines:
            self._flush()
        self._files.close()


def add_up(
    line_N: np.ndarray, site_N: np.ndarray, documents_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each pair of line and site once, in order, with its documents."""
    order_N = np.lexsort((site_N, line_N))
    line_N, site_N = line_N[order_N], site_N[order_N]
    first_N = np.ones(len(order_N), bool)
    first_N[1:] = (line_N[1:] != line_N[:-1]) | (site_N[1:] != site_N[:-1])
    starts = np.flatnonzero(first_N)
    sums = np.add.reduceat(documents_N[order_N], starts) if len(starts) else documents_N[:0]
    return line_N[starts], site_N[starts], sums


COUNT = Stage("boilerplate_counts", f"2; Unicode {unidata_version}", count_partition)
