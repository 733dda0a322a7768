"""A training process that writes down what each step was given: the ids of its rows.

python -m bench.record_steps DIRECTORY train --config=... --workdir=...
python -m bench.record_steps DIRECTORY launch --processes=2 --config=... --workdir=...

A step that is taken again, after a resume, is written again. Of several processes each writes the
rows that lie on its own devices, and the positions of all.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlm import cli, train
from launch import job
from launch.local import plan
from launch.process import Spec


def launch(directory: Path, argv: list[str]) -> int:
    """The local launcher, over processes that write down their steps; it never gives up."""
    processes = next(arg for arg in argv if arg.startswith("--processes="))
    rest = [arg for arg in argv if arg != processes]
    workdir = next(arg for arg in argv if arg.startswith("--workdir=")).partition("=")[2]
    program = (sys.executable, "-m", "bench.record_steps", str(directory), "train", *rest)
    count = int(processes.partition("=")[2])
    logs = job.logs_of(workdir)

    def specs() -> tuple[Spec, ...]:
        return plan(program, logs, count, job.free_port())

    return job.run(job.Job(workdir, logs, specs, max_restarts=1_000_000))


def record() -> int:
    """`jaxlm` with `DIRECTORY/STEP.npy`, rows, and `DIRECTORY/positions/STEP.npy`, uint32[B, 2].

    Of several processes process I writes `DIRECTORY/I/STEP.npy`.
    """
    directory = Path(sys.argv[1])
    compile_train_step = train.compile_train_step

    def compile_and_record(*args: Any) -> Any:
        train_step = compile_train_step(*args)
        one = jax.process_count() == 1
        place = directory if one else directory / str(jax.process_index())
        (directory / "positions").mkdir(parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)

        def step(state: Any, rows_BT: Any, controls: Any) -> Any:
            name = f"{int(state.step) + 1}.npy"
            shards = {str(s.index): np.asarray(s.data) for s in rows_BT.addressable_shards}
            np.save(place / name, np.concatenate(list(shards.values())))
            if jax.process_index() == 0:
                np.save(directory / "positions" / name, controls.positions)
            return train_step(state, rows_BT, controls)

        return step

    train.compile_train_step = compile_and_record
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    if sys.argv[2] == "launch":
        sys.exit(launch(Path(sys.argv[1]), sys.argv[3:]))
    sys.exit(record())
