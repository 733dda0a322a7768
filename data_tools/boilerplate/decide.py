"""Second stage of boilerplate: which lines of a bucket it is, and where they are to be removed.

Memory: about 150 MB for counts, whatever the size of the bucket, since it is worked off in slices
of `ROWS_AT_ONCE`; 16 bytes for each site of the corpus; and what is found.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.boilerplate.config import Thresholds
from data_tools.boilerplate.site import EVERYWHERE
from data_tools.stage import Input, Partition, Report, Stage

ROWS_AT_ONCE = 1 << 21
"""Counts that are sorted in memory."""

REMOVED = pa.schema([("line", pa.uint64()), ("site", pa.uint64())])
"""Lines to be removed from a partition's documents of a site, or of all (`EVERYWHERE`)."""

FOUND = pa.schema(
    [
        ("text", pa.string()),
        ("documents", pa.int64()),
        ("sites", pa.int64()),
        ("everywhere", pa.bool_()),
        ("top_site", pa.string()),
    ]
)
"""A line found, in normal form: the documents and sites that it is in; whether it goes everywhere,
or only from the sites that it is a share of; the site with most of its documents."""


@dataclass(frozen=True)
class Counts:
    """N rows: so many documents of one site, of one partition, have the line."""

    line_N: np.ndarray
    site_N: np.ndarray
    documents_N: np.ndarray
    file_N: np.ndarray
    """Stands for the partition: its index among the inputs."""


@dataclass(frozen=True)
class Sites:
    """All S sites of the corpus, by hash, with their documents."""

    site_S: np.ndarray
    documents_S: np.ndarray

    def documents(self, site_P: np.ndarray) -> np.ndarray:
        """How many each of these has."""
        return self.documents_S[np.searchsorted(self.site_S, site_P)]


@dataclass(frozen=True)
class Verdicts:
    """L lines that are boilerplate, and the R places that they go from."""

    line_L: np.ndarray
    documents_L: np.ndarray
    sites_L: np.ndarray
    everywhere_L: np.ndarray
    top_site_L: np.ndarray
    removed_R3: np.ndarray
    """File, line, site: each once, in order."""


def decide_partition(partition: Partition[Thresholds], out: Path) -> Report:
    """Writes <partition>.parquet for each with boilerplate of this bucket, and lines.parquet."""
    files = partition.inputs["counts"]
    sites = _read_sites(partition.inputs["sites"])
    slices = [decide(c, sites, partition.config) for c in _slices(files)]
    file_R, line_R, site_R = np.concatenate([v.removed_R3 for v in slices]).T
    for file in np.unique(file_R):
        here = file_R == file
        table = pa.table([line_R[here], site_R[here]], REMOVED)
        pq.write_table(table, out / f"{files[file].name}.parquet", compression="zstd")
    rows = sorted(
        (row for v in slices for row in _describe(v, partition.inputs)),
        key=lambda row: (-row[1], row[0]),
    )
    if rows:
        table = pa.table([list(c) for c in zip(*rows, strict=True)], FOUND)
        pq.write_table(table, out / "lines.parquet", compression="zstd")
    return {"lines": len(rows)}


def decide(counts: Counts, sites: Sites, config: Thresholds) -> Verdicts:
    """The boilerplate; `counts` must have all of a line that it has any of.

    P: pairs of a line and a site.
    """
    order_N = np.lexsort((counts.site_N, counts.line_N))
    line_N, site_N = counts.line_N[order_N], counts.site_N[order_N]
    pairs = _starts(line_N, site_N)
    line_P, site_P = line_N[pairs], site_N[pairs]
    documents_P = np.add.reduceat(counts.documents_N[order_N], pairs)
    lines = _starts(line_P)
    documents_L = np.add.reduceat(documents_P, lines)
    sites_L = np.diff(lines, append=len(line_P))

    everywhere_L = (documents_L >= config.documents) & (sites_L >= config.sites)
    least_P = np.maximum(config.site_documents, config.site_share * sites.documents(site_P))
    here_P = documents_P >= least_P
    found_L = everywhere_L | np.logical_or.reduceat(here_P, lines)

    everywhere_P = np.repeat(everywhere_L, sites_L)
    rows_P = np.diff(pairs, append=len(line_N))
    goes_N = np.repeat(everywhere_P | here_P, rows_P)
    from_N = np.repeat(np.where(everywhere_P, np.uint64(EVERYWHERE), site_P), rows_P)
    places = (counts.file_N[order_N], line_N, from_N)
    found_P = np.flatnonzero(np.repeat(found_L, sites_L))
    by_size = found_P[np.lexsort((-documents_P[found_P], line_P[found_P]))]
    return Verdicts(
        line_L=line_P[lines][found_L],
        documents_L=documents_L[found_L],
        sites_L=sites_L[found_L],
        everywhere_L=everywhere_L[found_L],
        top_site_L=site_P[by_size[_starts(line_P[by_size])]],
        removed_R3=_distinct(np.stack([p[goes_N] for p in places], axis=1)),
    )


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Where rows in order differ from the one before."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([c[1:] != c[:-1] for c in columns])
    return np.flatnonzero(new)


def _distinct(rows_R3: np.ndarray) -> np.ndarray:
    """Each row once, in order."""
    rows_R3 = rows_R3[np.lexsort(rows_R3.T[::-1])]
    return rows_R3[_starts(*rows_R3.T)]


# ---- reading -------------------------------------------------------------------------------------


def _columns(file: Input, *names: str) -> Iterator[list[np.ndarray]]:
    """Columns of a table, a row group at a time."""
    with pq.ParquetFile(file.path) as table:
        for group in range(table.num_row_groups):
            rows = table.read_row_group(group, columns=list(names))
            yield [rows[name].to_numpy() for name in names]


def _slices(files: Sequence[Input]) -> Iterator[Counts]:
    """All rows, in parts of about `ROWS_AT_ONCE`; those of a line are in one part."""
    rows = sum(pq.read_metadata(f.path).num_rows for f in files)
    slices = -(-rows // ROWS_AT_ONCE)
    for wanted in range(slices):
        parts = []
        for index, file in enumerate(files):
            for line_N, site_N, documents_N in _columns(file, "line", "site", "documents"):
                low_N = line_N & np.uint64(0xFFFFFFFF)  # the high bits have chosen the bucket
                here = (low_N * np.uint64(slices)) >> np.uint64(32) == wanted
                file_N = np.full(here.sum(), index, np.uint64)
                documents_N = documents_N[here].astype(np.int64)
                parts.append((line_N[here], site_N[here], documents_N, file_N))
        yield Counts(*(np.concatenate(p) for p in zip(*parts, strict=True)))


def _read_sites(files: Iterable[Input]) -> Sites:
    site_S, documents_S = np.empty(0, np.uint64), np.empty(0, np.int64)
    for file in files:
        for site_N, documents_N in _columns(file, "site", "documents"):
            known = np.append(site_S, site_N)
            site_S, place = np.unique(known, return_inverse=True)
            total_S = np.zeros(len(site_S), np.int64)
            np.add.at(total_S, place, np.append(documents_S, documents_N))
            documents_S = total_S
    return Sites(site_S, documents_S)


def _describe(
    verdicts: Verdicts, inputs: Mapping[str, tuple[Input, ...]]
) -> Iterator[tuple[str, int, int, bool, str]]:
    """Rows of `FOUND`."""
    texts = _names(inputs["lines"], ("line", "text"), verdicts.line_L)
    sites = _names(inputs["sites"], ("site", "name"), verdicts.top_site_L)
    for line, documents, count, everywhere, top in zip(
        verdicts.line_L.tolist(),
        verdicts.documents_L.tolist(),
        verdicts.sites_L.tolist(),
        verdicts.everywhere_L.tolist(),
        verdicts.top_site_L.tolist(),
        strict=True,
    ):
        yield texts[line], documents, count, everywhere, sites[top]


def _names(files: Iterable[Input], columns: tuple[str, str], wanted: np.ndarray) -> dict[int, str]:
    """Hash -> what it is of; two columns have both."""
    found = {}
    for file in files:
        for hash_N, name_N in _columns(file, *columns):
            here = np.isin(hash_N, wanted)
            found.update(zip(hash_N[here].tolist(), name_N[here].tolist(), strict=True))
    return found


DECIDE = Stage("boilerplate", "1", decide_partition)
