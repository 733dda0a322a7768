"""One process of several that read batches together: compares its devices' rows with a file.

python -m tests.data.read_batches MANIFEST ROWS.npy PORT PROCESSES INDEX
"""

import itertools
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxlm.config import DataConfig
from jaxlm.data import source
from jaxlm.data.cache import CacheConfig
from jaxlm.data.files import open_files
from jaxlm.data.loader import Loader
from jaxlm.data.source import TrainRows

MESHES = ((8, 1, 1), (4, 2, 1), (2, 2, 2), (1, 4, 2), (1, 2, 4), (1, 1, 8))


def open_rows(manifest: str) -> TrainRows:
    """Training rows of a corpus with chunks of 32."""
    files = open_files(manifest, CacheConfig())
    return source.open_train(files, DataConfig(manifest=manifest, seq_len=32), ())


def sharding(sizes: tuple[int, int, int], axes: tuple[int, int, int]) -> NamedSharding:
    """Rows over data and fsdp, alike over tensor; `axes` from slow to fast in device order."""
    names, count = ("data", "fsdp", "tensor"), int(np.prod(sizes))
    devices = np.array(jax.devices()[:count]).reshape([sizes[a] for a in axes])
    mesh = Mesh(devices, [names[a] for a in axes])
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp"), None))


class Recorded(TrainRows):
    """Remembers the positions that were read."""

    def __init__(self, rows: TrainRows):
        super().__init__(rows.shards, rows.order)
        self.read: set[int] = set()

    def rows(self, positions: np.ndarray) -> np.ndarray:
        self.read.update(positions.tolist())
        return super().rows(positions)


def main() -> None:
    manifest, saved, port, processes, index = sys.argv[1:]
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(index))
    expected = np.load(saved)
    for sizes, axes in itertools.product(MESHES, itertools.permutations(range(3))):
        rows, own = Recorded(open_rows(manifest)), set[int]()
        with Loader(rows, sharding(sizes, axes), 16, 0, len(expected)) as loader:
            for batch in loader:
                batch_rows = expected[batch.position : batch.next_position]
                for part in batch.rows_BT.addressable_shards:
                    assert np.asarray(part.data).tobytes() == batch_rows[part.index].tobytes()
                    own.update(range(batch.position, batch.next_position)[part.index[0]])
        assert rows.read == own, f"mesh {sizes} {axes}: read {rows.read}, needs {own}"
    print("all equal")


if __name__ == "__main__":
    main()
