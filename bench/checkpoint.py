"""Saves beside plain tensorstore writes of the same bytes, and their memory.

Ours is `jaxlm.checkpoint.Checkpoints` as a run uses it, with checksums, notes and a commit marker;
its restore reads everything once more, for the checksums. The other writes and reads the same
arrays by tensorstore alone, in the same format (zarr over OCDBT, one chunk an array, synced).
Both sides take turns.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tensorstore as ts
from jax import numpy as jnp

from jaxlm import platforms
from jaxlm.checkpoint import Checkpoints, Keep
from jaxlm.optim.optimizer import OptState
from jaxlm.state import TrainState

ARRAYS = 24
FIRST_SAVES = 10
"""Until caches and pools are filled."""
MOST_GROWTH = 0.05
MOST_SHARE = 0.02
"""Of an interval between saves that steps may wait for one."""


class Round(NamedTuple):
    """Seconds of one save and restore of each kind."""

    stall: float
    whole: float
    """From the start of the save until it is committed."""
    restore: float
    """Verified and restored."""
    unverified: float
    plain_write: float
    plain_read: float


def main(argv: list[str] | None = None) -> int:
    """Prints the figures; 1 if memory grows."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of the state")
    parser.add_argument("--saves", type=int, default=100, help="for the memory")
    parser.add_argument("--rounds", type=int, default=9, help="of the timing")
    args = parser.parse_args(argv)
    platforms.choose()
    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS"))  # it is imported already
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as root:
        state = make(args.megabytes)
        rounds = [measure(Path(root), state) for _ in range(args.rounds + 1)][1:]
        print("\n".join(lines(rounds, args.megabytes)), flush=True)
        resident = memory(Path(root), state, args.saves)
    grown = growth(resident)
    rest = resident[FIRST_SAVES:]
    print(
        f"| resident memory after saves {FIRST_SAVES + 1} to {args.saves}, MB | "
        f"{min(rest):,} to {max(rest):,}: {grown:.1%} of the median at most |"
    )
    return int(grown > MOST_GROWTH)


def make(megabytes: int) -> TrainState:
    """A state of so many bytes, in arrays of one size."""
    side = int((megabytes * 1e6 / ARRAYS / 4) ** 0.5)
    keys = jax.random.split(jax.random.key(0), ARRAYS)
    params = {f"array{i}": jax.random.normal(key, (side, side)) for i, key in enumerate(keys)}
    zero = jnp.zeros((), jnp.int32)
    return jax.block_until_ready(
        TrainState(zero, jnp.zeros(2, jnp.uint32), params, OptState(zero, {}))
    )


def measure(root: Path, state: TrainState) -> Round:
    """One round of both."""
    directory = root / "ours"
    with contextlib.closing(Checkpoints(directory, Keep(1))) as checkpoints:
        start = time.perf_counter()
        checkpoints.save(state, 1, {"position": 0})
        stall = time.perf_counter() - start
        problem = checkpoints.wait()
        whole = time.perf_counter() - start
        assert problem is None, problem
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    with contextlib.closing(Checkpoints(directory, Keep(1))) as checkpoints:
        restore = timed(
            lambda: (checkpoints.verify(1), jax.block_until_ready(checkpoints.restore(1, template)))
        )
        unverified = timed(lambda: jax.block_until_ready(checkpoints.restore(1, template)))
    arrays = [np.asarray(x) for x in jax.tree.leaves(state.params)]
    plain_write = timed(lambda: write(root / "plain", arrays))
    plain_read = timed(lambda: jax.block_until_ready(read(root / "plain", len(arrays))))
    shutil.rmtree(directory)
    shutil.rmtree(root / "plain")
    return Round(stall, whole, restore, unverified, plain_write, plain_read)


def timed(do: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def spec(directory: Path, index: int) -> dict[str, object]:
    """Of an array, as tensorstore wants it."""
    return {
        "driver": "zarr",
        "kvstore": {
            "driver": "ocdbt",
            "base": f"file://{directory}/",
            "path": f"array{index}/",
            "config": {"max_inline_value_bytes": 1024, "max_decoded_node_bytes": 100_000_000},
        },
    }


def write(directory: Path, arrays: list[np.ndarray]) -> None:
    """All arrays in one transaction."""
    with ts.Transaction(atomic=False) as transaction:
        writes, metadata = [], {"compressor": {"id": "zstd", "level": 1}}
        for i, array in enumerate(arrays):
            store = ts.open(
                spec(directory, i) | {"metadata": metadata | {"chunks": array.shape}},
                create=True, dtype=array.dtype, shape=array.shape, transaction=transaction,
            ).result()  # fmt: skip
            writes.append(store.write(array))
    for future in writes:
        future.result()


def read(directory: Path, count: int) -> list[jax.Array]:
    """All arrays, on the device."""
    context = ts.Context({"file_io_concurrency": {"limit": 128}})
    opened = [ts.open(spec(directory, i), context=context) for i in range(count)]
    reads = [store.result().read() for store in opened]
    return [jax.device_put(future.result()) for future in reads]


def memory(root: Path, state: TrainState, saves: int) -> list[int]:
    """Resident MB after each of so many saves in this process."""
    resident = []
    with contextlib.closing(Checkpoints(root / "many", Keep(2))) as checkpoints:
        for step in range(1, saves + 1):
            checkpoints.save(state, step, {"position": step})
            problem = checkpoints.wait()
            assert problem is None, problem
            status = Path("/proc/self/status").read_text()
            resident.append(int(status.partition("VmRSS:")[2].split()[0]) // 1000)
    return resident


def growth(resident: list[int]) -> float:
    """The largest distance from the median, after the first saves, as a share of it."""
    rest = resident[FIRST_SAVES:]
    middle = statistics.median(rest)
    return max(abs(value - middle) for value in rest) / middle


def lines(rounds: list[Round], megabytes: int) -> list[str]:
    """The table."""
    middle = Round(*(statistics.median(column) for column in zip(*rounds, strict=True)))

    def ratio(ours: str, plain: str) -> str:
        found = sorted(getattr(r, ours) / getattr(r, plain) for r in rounds)
        quarter = len(found) // 4
        return f"{statistics.median(found):.2f} ({found[quarter]:.2f} to {found[-1 - quarter]:.2f})"

    return [
        f"| a state of {megabytes} MB, medians of {len(rounds)} rounds | |",
        "|---|---|",
        f"| the steps wait for a save, s | {middle.stall:.3f} |",
        f"| committed after, s | {middle.whole:.2f} |",
        f"| verified and restored, s | {middle.restore:.2f} |",
        f"| restored alone, s | {middle.unverified:.2f} |",
        f"| tensorstore alone writes, s | {middle.plain_write:.2f} |",
        f"| tensorstore alone reads, s | {middle.plain_read:.2f} |",
        f"| wait / tensorstore's write | {ratio('stall', 'plain_write')} |",
        f"| committed / tensorstore's write | {ratio('whole', 'plain_write')} |",
        f"| verified and restored / tensorstore's read | {ratio('restore', 'plain_read')} |",
        f"| restored alone / tensorstore's read | {ratio('unverified', 'plain_read')} |",
        f"| the wait is below {MOST_SHARE:.0%} of the time for saves every | "
        f"{middle.stall / MOST_SHARE:.0f} s or more |",
    ]


if __name__ == "__main__":
    sys.exit(main())
