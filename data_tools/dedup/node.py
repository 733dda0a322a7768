"""A document's number within one run of near dedup, and what partitions hold by number.

A node is a uint64: the place of its partition in the list of all, then 32 bits of its row there.
Nodes say where to look, never who is first: that is decided by ids, so that a result does not
depend on how documents are cut into partitions.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np

from data_tools.dedup.index import FACT
from data_tools.stage import Input

_ROW = np.uint64(0xFFFFFFFF)
_HOME = np.uint64(32)


def nodes(home: int, row_N: np.ndarray) -> np.ndarray:
    """uint64[N] for rows of one partition."""
    return row_N.astype(np.uint64) | np.uint64(home) << _HOME


def homes(node_N: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (partition, places in `node_N`, their rows in the partition)."""
    home_N = node_N >> _HOME
    order = np.argsort(home_N, kind="stable")
    for run in runs_of(home_N[order]):
        places = order[run]
        yield int(home_N[places[0]]), places, node_N[places] & _ROW


def facts(files: Sequence[Input], node_N: np.ndarray) -> np.ndarray:
    """FACT[N] from the facts.npy of all partitions."""
    result = np.empty(len(node_N), FACT)
    for home, places, rows in homes(node_N):
        result[places] = np.load(files[home].path, mmap_mode="r")[rows]
    return result


def origins(
    files: Sequence[Input], node_N: np.ndarray, fact_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(str[N], str[N]): source and type of each, from its fact and the sources.json of all."""
    result = np.empty((len(node_N), 2), object)
    for home, places, _ in homes(node_N):
        names = json.loads(files[home].path.read_text(encoding="utf-8"))
        result[places] = np.array(names, object)[fact_N["source"][places]]
    return result[:, 0], result[:, 1]


def id_order(fact_N: np.ndarray) -> np.ndarray:
    """int64[N]: the places of documents in the order of their ids."""
    return np.lexsort((fact_N["id"][:, 1], fact_N["id"][:, 0]))


def begins(*columns: np.ndarray) -> np.ndarray:
    """bool[N]: where a row differs from the one before it in some column; true for the first."""
    result = np.zeros(len(columns[0]), bool)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def runs_of(value_N: np.ndarray) -> Iterator[slice]:
    """The runs of equal values, in order."""
    first = np.flatnonzero(begins(value_N)).tolist()
    yield from map(slice, first, [*first[1:], len(value_N)])


def range_bounds(key_M: np.ndarray, index: int, count: int) -> slice:
    """Where the keys of one of `count` equal ranges of 64-bit values lie among sorted ones."""
    edges = [np.uint64((i << 64) // count) for i in (index, index + 1) if i < count]
    places = np.searchsorted(key_M, edges)
    return slice(int(places[0]), int(places[1]) if len(places) == 2 else len(key_M))
