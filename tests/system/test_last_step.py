"""What falls on one step: a save and an evaluation, a stop and the end, a stop and a moment."""

import sys
from pathlib import Path

import pytest

from bench import runs
from jaxlm import workdir as workdirs

pytestmark = pytest.mark.system

END = 12
SHORT = (f"train.end={END} steps", "model.dropout=()", "optim.warmup=0 steps")
BEFORE = """
import os, signal, sys, time
from pathlib import Path
from jaxlm import cli, train
from jaxlm.workdir import MARKER
workdir = Path({workdir!r})
"""
KILLED = """
def evaluate(self, params, step, position):
    if step == {step}:
        marker = workdir / "checkpoints" / "full" / str(step) / MARKER
        end = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
train.Evaluation.__call__ = evaluate
"""
STOPPED = """
controls = train.Host.controls
def asked(self, batch, save, stop, limits):
    return controls(self, batch, save, batch.next_position == 4 * {step}, limits)
train.Host.controls = asked
"""


def patched(code: str, step: int, config: Path, workdir: Path, *overrides: str) -> list[str]:
    program = (BEFORE + code).format(workdir=str(workdir), step=step)
    command = runs.train(config, workdir, *SHORT, *overrides)
    return [sys.executable, "-c", program + "sys.exit(cli.main(sys.argv[1:]))", *command[3:]]


@pytest.mark.parametrize("step", [6, END])
def test_killed_in_an_evaluation_nothing_is_lost(tmp_path, config, step):
    at_both = ("checkpoint.every=6 steps", "evaluate.every=6 steps")
    command = patched(KILLED, step, config, tmp_path / "run", *at_both)
    code, output = runs.finish(command, tmp_path / "killed")
    assert code == -9 and runs.committed(tmp_path / "run")[-1] == step, output
    again = runs.train(config, tmp_path / "run", *SHORT, *at_both)
    code, output = runs.finish(again, tmp_path / "again")
    assert code == 0 and runs.committed(tmp_path / "run")[-1] == END, output
    assert (f"resuming at step {step}" if step < END else "complete at step") in output
    undisturbed = runs.train(config, tmp_path / "whole", *SHORT, *at_both)
    assert runs.finish(undisturbed, tmp_path / "whole.log")[0] == 0
    runs.assert_same(runs.state(tmp_path / "run", END), runs.state(tmp_path / "whole", END))
    assert evaluations(tmp_path)


def evaluations(root: Path) -> list[dict]:
    lines = workdirs.lines(root / "whole" / "metrics.jsonl")
    return [line for line in lines if line["step"] == END and "loss" not in line]


def test_asked_to_stop_in_the_last_step_it_ends_without_an_evaluation(tmp_path, config):
    command = patched(STOPPED, END, config, tmp_path / "run")
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 0, output
    assert "no held-out loss at the end" in output and f"held-out at step {END}" not in output
    assert workdirs.status(tmp_path / "run")["state"] == "done"
    assert runs.committed(tmp_path / "run") == [END]


def test_a_stop_at_a_chosen_moment_saves_for_ever(tmp_path, config):
    more = ("checkpoint.at=('5 steps',)", "checkpoint.keep=1", "checkpoint.every=3 steps")
    command = patched(STOPPED, 5, config, tmp_path / "run", *more)
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 75 and "stopped as asked: step 5 is saved" in output, output
    again = runs.train(config, tmp_path / "run", *SHORT, *more)
    code, output = runs.finish(again, tmp_path / "again")
    assert code == 0, output
    assert runs.committed(tmp_path / "run") == [5, END]
