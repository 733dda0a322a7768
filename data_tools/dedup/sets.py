"""The sets of shingles of the documents that are in a pair, and how much two sets have in common.

    bounds.npy     int64[N + 1]: the set of row n is bounds[n] to bounds[n + 1]; empty when no pair
                   needs it, and for a text that is compared as a whole
    shingles.u64   the sets one after the other: sorted, distinct 64-bit little-endian hashes

Each set is written once, and read where a pair needs it: through a mapped file, in blocks that fit
the memory budget.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.dedup.config import ShingleConfig
from data_tools.dedup.index import by_kind
from data_tools.dedup.node import begins, homes, runs_of
from data_tools.dedup.shingles import batches, shingles
from data_tools.dedup.units import VERSION
from data_tools.stage import Input, Partition, Report, Stage

ELEMENT_BYTES = 40
"""Of memory for each shingle of a block: loaded, gathered, searched and found."""


def sets_partition(partition: Partition[ShingleConfig], out: Path) -> Report:
    """Writes the sets of the wanted rows; needs 8 bytes a document, and one row group of text."""
    wanted = [np.load(i.path) for i in partition.inputs["wanted"]]
    row_W = np.unique(np.concatenate([np.empty(0, np.uint32), *wanted]))
    sizes = [np.zeros(1, np.int64)]
    first = 0
    with (out / "shingles.u64").open("wb") as file:
        for table, group in _groups(partition.inputs["documents"]):
            size_N = np.zeros(table.metadata.row_group(group).num_rows, np.int64)
            low, high = np.searchsorted(row_W, [first, first + len(size_N)])
            if low < high:
                here = row_W[low:high] - np.uint32(first)
                rows = table.read_row_group(group, columns=["text", "type"]).take(pa.array(here))
                for place, found in _sets(rows, partition.config):
                    size_N[here[place]] = len(found)
                    file.write(found.tobytes())
            sizes.append(size_N)
            first += len(size_N)
    bounds = np.cumsum(np.concatenate(sizes))
    np.save(out / "bounds.npy", bounds)
    return {"documents": len(row_W), "shingles": int(bounds[-1])}


def _groups(files: Sequence[Input]) -> Iterator[tuple[pq.ParquetFile, int]]:
    for file in files:
        with pq.ParquetFile(file.path) as table:
            for group in range(table.num_row_groups):
                yield table, group


def _sets(rows: pa.Table, config: ShingleConfig) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (place, its set), in order, of those that are compared by similarity."""
    texts, types = (rows[name].to_pylist() for name in ("text", "type"))
    for code, places in by_kind(types, range(len(texts)), config):
        for batch in batches([len(texts[i]) for i in places]):
            chosen = places[batch]
            hash_S, bounds = shingles([texts[i] for i in chosen], code, config)
            for place, begin, end in zip(chosen, bounds, bounds[1:], strict=False):
                if begin < end:
                    ordered = np.sort(hash_S[begin:end])
                    yield place, ordered[np.append(True, ordered[1:] != ordered[:-1])]


class Sets:
    """The sets of all partitions, on disk."""

    def __init__(self, bounds: Sequence[Input], shingles: Sequence[Input]):
        self._bounds, self._shingles = bounds, shingles

    def sizes(self, node_N: np.ndarray) -> np.ndarray:
        """int64[N]: shingles in the set of each node."""
        size_N = np.zeros(len(node_N), np.int64)
        for home, places, rows in homes(node_N):
            stored = np.load(self._bounds[home].path, mmap_mode="r")
            size_N[places] = stored[rows + np.uint64(1)] - stored[rows]
        return size_N

    def load(self, node_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(The sets one after the other, int64[N + 1] their bounds)."""
        bounds = np.concatenate([[0], np.cumsum(self.sizes(node_N))])
        result = np.empty(bounds[-1], np.uint64)
        for home, places, rows in homes(node_N):
            stored_bounds = np.load(self._bounds[home].path, mmap_mode="r")
            if not stored_bounds[-1]:
                continue  # an empty file cannot be mapped
            stored = np.memmap(self._shingles[home].path, "<u8", "r")
            for place, begin in zip(places, stored_bounds[rows], strict=True):
                size = bounds[place + 1] - bounds[place]
                result[bounds[place] : bounds[place + 1]] = stored[begin : begin + size]
        return result, bounds

    def shared(self, first_E: np.ndarray, second_E: np.ndarray, memory_bytes: int) -> np.ndarray:
        """int64[E]: shingles that the two of each pair have in common; best sorted by the first.

        Reads a block of pairs at a time: as many as fit in `memory_bytes`, at least one.
        """
        shared_E = np.zeros(len(first_E), np.int64)
        work_E = self.sizes(second_E) + np.where(begins(first_E), self.sizes(first_E), 0)
        block_E = np.cumsum(work_E) * ELEMENT_BYTES // memory_bytes
        for block in runs_of(block_E):
            shared_E[block] = self._shared(first_E[block], second_E[block])
        return shared_E

    def _shared(self, first_E: np.ndarray, second_E: np.ndarray) -> np.ndarray:
        node_N, place = np.unique(np.append(first_E, second_E), return_inverse=True)
        loaded, bounds = self.load(node_N)
        first_E, second_E = place[: len(first_E)], place[len(first_E) :]
        shared_E = np.empty(len(first_E), np.int64)
        for star in runs_of(first_E):
            centre = first_E[star.start]
            one = loaded[bounds[centre] : bounds[centre + 1]]
            parts = [loaded[bounds[n] : bounds[n + 1]] for n in second_E[star]]
            many = np.concatenate(parts)
            found = np.searchsorted(one, many)
            hit = np.zeros(len(many) + 1, np.int64)
            if len(one):
                found[found == len(one)] = 0
                np.cumsum(one[found] == many, out=hit[1:])
            edges = np.cumsum([0, *map(len, parts)])
            shared_E[star] = np.diff(hit[edges])
        return shared_E


SETS = Stage("near_sets", f"1 {VERSION}", sets_partition)
