"""A training process of which one device keeps a wrong bit, once.

python -m tests.system.flip_a_bit STEP DEVICE train --config=... --workdir=...

The first time that this step is done, a bit of the last norm flips after it: in the copy that the
process's device of that number holds.
"""

import sys
from typing import Any

import jax
import numpy as np

from jaxlm import cli, train


def flipped(x: jax.Array, device: int) -> jax.Array:
    """The array with another bit on one of this process's devices."""
    parts = [np.array(shard.data) for shard in x.addressable_shards]
    parts[device].view(np.uint32)[0] ^= 1 << 9
    placed = [
        jax.device_put(part, shard.device)
        for part, shard in zip(parts, x.addressable_shards, strict=True)
    ]
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, placed)


def main() -> int:
    wanted, device = int(sys.argv[1]), int(sys.argv[2])
    compile_train_step = train.compile_train_step
    waiting = [True]

    def compile_and_flip(*args: Any) -> Any:
        train_step = compile_train_step(*args)

        def step(state: Any, rows_BT: Any, controls: Any) -> Any:
            found, metrics = train_step(state, rows_BT, controls)
            if int(found.step) == wanted and waiting:
                waiting.clear()
                norm = jax.tree.map(lambda x: flipped(x, device), found.params["norm"])
                found = found._replace(params={**found.params, "norm": norm})
            return found, metrics

        return step

    train.compile_train_step = compile_and_flip
    return cli.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
