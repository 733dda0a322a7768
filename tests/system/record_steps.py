"""A training process that writes down what each step was given: the ids of its rows.

python -m tests.system.record_steps DIRECTORY train --config=... --workdir=...

A step that is taken again, after a resume, is written again.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm import cli, train


def main() -> int:
    directory = Path(sys.argv[1])
    directory.mkdir(exist_ok=True)
    compile_train_step = train.compile_train_step

    def compile_and_record(*args: Any) -> Any:
        train_step = compile_train_step(*args)

        def step(state: Any, rows_BT: Any, controls: Any) -> Any:
            np.save(directory / f"{int(state.step) + 1}.npy", np.asarray(rows_BT))
            return train_step(state, rows_BT, controls)

        return step

    train.compile_train_step = compile_and_record
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
