"""A bit that flips on a device stops the run before anything is saved, and the device is named."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from bench import runs
from jaxlm import workdir as workdirs

pytestmark = pytest.mark.system

SHORT = (
    "train.end=10 steps",
    "evaluate.every=None",
    "checkpoint.every=4 steps",
    "model.dropout=()",
)
REPLICAS = (*SHORT, "mesh.data=4", "mesh.fsdp=1", "corruption.compare_every=3 steps")


def flipping(command: list[str], step: int, device: int) -> list[str]:
    """The command of a process whose device goes wrong."""
    assert command[1:3] == ["-m", "jaxlm"]
    return [sys.executable, "-m", "tests.system.flip_a_bit", str(step), str(device), *command[3:]]


def two_processes(config: Path, workdir: Path, flip_step: int | None) -> tuple[int, int]:
    """Exit codes of two processes with two devices each; the third device of all goes wrong."""
    command = [*runs.train(config, workdir, *REPLICAS), *runs.apart()]
    zero, one = [*command, "--process=0"], [*command, "--process=1"]
    if flip_step is not None:
        one = flipping(one, flip_step, 0)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(runs.running(c, workdir.with_suffix(f".{n}.log"), devices=2))
            for n, c in enumerate((zero, one))
        ]
        first, second = (process.wait(runs.PATIENCE_S) for process in started)
    return first, second


def test_a_copy_that_changes_names_its_device(tmp_path, config):
    workdir = tmp_path / "run"
    assert two_processes(config, workdir, flip_step=7) == (78, 78)
    for process in (0, 1):  # both say it; the save of step 8 was due
        said = workdir.with_suffix(f".{process}.log").read_text()
        assert "step 8: devices that should hold the same numbers do not:" in said, said
        assert "of process 1: differs from the 3 others that hold the same of params/norm" in said
        assert "At step 6 the copies were the same" in said
        assert "newest checkpoint is that of step 4" in said
    assert runs.committed(workdir) == [4] and not runs.unfinished(workdir)
    (event,) = [e for e in workdirs.lines(workdir / "events.jsonl") if e["kind"] == "copies-differ"]
    assert event["step"] == 8 and event["agreed"] == 6
    named = {device for d in event["differences"] for device in d["suspects"]}
    assert len(named) == 1 and named.pop().endswith("of process 1")
    assert two_processes(config, workdir, flip_step=None) == (0, 0)
    assert runs.committed(workdir)[-1] == 10
    told = json.loads((workdir / workdirs.REPLICAS).read_text())
    assert told["copies"] == [4, 4] and told["comparable_bytes"] == told["all_bytes"]
    assert told["agreed_at_step"] == 10


def test_a_step_done_twice_changes_nothing(tmp_path, config):
    """Over fsdp, where next to nothing can be compared."""
    plain, twice = tmp_path / "plain", tmp_path / "twice"
    for workdir, flags in (
        (plain, ()),
        (twice, ("--verify-step", "corruption.verify_every=5 steps")),
    ):
        command = runs.train(config, workdir, *SHORT, *flags)
        code, output = runs.finish(command, workdir.with_suffix(".log"), devices=2)
        assert code == 0, output
    for step in (1, 5, 10):
        assert f"step {step}, done twice, came out the same to the bit" in output
    assert "a step can be done twice instead" in plain.with_suffix(".log").read_text()
    assert json.loads((twice / workdirs.REPLICAS).read_text())["verified_at_step"] == 10
    runs.assert_same(runs.state(plain, 10), runs.state(twice, 10))


def test_a_step_that_comes_out_in_two_ways_stops_the_run(tmp_path, config):
    workdir = tmp_path / "run"
    command = runs.train(config, workdir, *SHORT, "corruption.verify_every=3 steps")
    code, output = runs.finish(flipping(command, 6, 1), tmp_path / "log", devices=2)
    assert code == 78, output
    assert "step 6, done twice from one state and one batch, came out in two ways: 1 of" in output
    assert "At step 3 a step came out the same: checkpoints after it may be wrong" in output
    assert "the newest from before is none" in output
    assert runs.committed(workdir) == [4]
