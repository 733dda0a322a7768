"""A run that goes on with other numbers of processes, on other meshes."""

import shutil

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place, assert_each_once, recorded
from jaxlm import workdir as workdirs

STEPS, HALF = 60, 30
MESHES = ((1, 4, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2))
"""(data, fsdp, tensor)."""
STATE_ATOL = 1e-6
OVERRIDES = (*PLAIN, f"train.end={STEPS} steps", f"checkpoint.every={HALF} steps")


def elastic(place: Place) -> Outcome:
    """From the middle of a run of one process and device, on each mesh by 1, 2 and 4 processes."""
    outcome, same = Outcome(), 0
    whole, steps = place.root / "whole", place.root / "whole.steps"
    place.finish(recorded(runs.train(place.config, whole, *OVERRIDES), steps), "whole")
    expected = runs.state(whole, STEPS)
    cases = [(processes, mesh) for mesh in MESHES for processes in (1, 2, 4)]
    for processes, mesh in cases[: place.tries]:
        name = f"{processes}-{'x'.join(map(str, mesh))}"
        workdir, record = place.root / name, place.root / f"{name}.steps"
        shutil.copytree(whole, workdir)
        runs.go_back(workdir, HALF)
        record.mkdir()
        (record / "positions").mkdir()
        for step in range(1, HALF + 1):  # of the half that is not done again
            shutil.copy(steps / "positions" / f"{step}.npy", record / "positions")
        axes = (
            f"mesh.{axis}={n}" for axis, n in zip(("data", "fsdp", "tensor"), mesh, strict=True)
        )
        launch = runs.launch(place.config, workdir, *OVERRIDES, *axes, processes=processes)
        with outcome.trying():
            output = place.finish(recorded(launch, record), name, devices=4 // processes)
            assert f"resuming at step {HALF}" in output
            start = workdirs.history(workdir)[-1]
            assert (start.processes, tuple(start.mesh)) == (processes, mesh)
            assert_each_once(record, steps, STEPS, first=HALF + 1)
            found = runs.state(workdir, STEPS)
            runs.assert_close(found, expected, STATE_ATOL)
            same += all(array.tobytes() == expected[key].tobytes() for key, array in found.items())
        shutil.rmtree(workdir)
    outcome.notes.append(f"{same} of them bit-identical")
    return outcome
