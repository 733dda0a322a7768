"""A spike makes the run go back and jump over its rows; so does a run that is killed on the way.

The spike is real: one batch is of random tokens, after a loss that has long fallen.
"""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from bench import runs
from bench.faults import numbers
from bench.faults.numbers import MARGIN, ROWS, SPIKE, SPIKY, STEPS
from jaxlm import status
from jaxlm import workdir as workdirs
from jaxlm.data import skips


@pytest.fixture(scope="module")
def spiky(tmp_path_factory) -> Path:
    """A config whose corpus has that batch."""
    return numbers.spiky(tmp_path_factory.mktemp("spiky"))


@pytest.fixture(scope="module")
def gone_back(spiky, tmp_path_factory) -> Path:
    """A run that went back, and to its end, undisturbed."""
    workdir = tmp_path_factory.mktemp("gone_back") / "run"
    command = runs.train(spiky, workdir, *SPIKY)
    code, output = runs.finish(command, workdir.with_suffix(".log"))
    assert code == 0, output
    assert f"step {SPIKE} is a spike: loss " in output
    return workdir


@pytest.fixture(scope="module")
def killed_before(spiky, tmp_path_factory) -> Path:
    """A run that was killed a few steps before the spike."""
    workdir = tmp_path_factory.mktemp("killed_before") / "run"
    with runs.running(runs.train(spiky, workdir, *SPIKY), workdir.with_suffix(".log")) as process:
        runs.kill_when(process, lambda: SPIKE - 10 in runs.committed(workdir))
    assert runs.committed(workdir)[-1] < SPIKE - MARGIN
    return workdir


def event(workdir: Path) -> dict:
    """The one spike; a run that was killed at once tells of it again."""
    found = [e for e in workdirs.lines(workdir / "events.jsonl") if e["kind"] == "spike"]
    assert len({e["event"] for e in found}) == 1
    return found[-1]


def test_the_run_goes_back_and_jumps_over_the_rows(gone_back):
    found = event(gone_back)
    assert found["step"] == SPIKE and found["action"] == "rollback"
    assert found["positions"] == list(range(4 * (SPIKE - 1), 4 * SPIKE))
    assert json.loads((gone_back / skips.FILE).read_text()) == [[*ROWS, found["event"]]]
    first, second = workdirs.history(gone_back)
    assert (first.step, second.step) == (0, SPIKE - 1 - MARGIN)
    assert second.position == ROWS[0] and second.skips == [list(ROWS)]
    moved = sorted(p.name for p in (gone_back / "abandoned" / found["event"] / "full").iterdir())
    assert moved == [str(step) for step in range(SPIKE - MARGIN, SPIKE)]
    steps = STEPS - 1 - 2 * MARGIN
    assert runs.committed(gone_back)[-1] == steps
    assert workdirs.status(gone_back)["saved"] == steps


def test_what_was_done_in_vain_is_told(gone_back):
    """One process: it had handed over the spike's step, perhaps one more, and went back."""
    spent = runs.time_spent(gone_back)
    assert len(spent.attempts) == 1
    assert spent.lost_steps in (MARGIN + 1, MARGIN + 2)
    assert spent.seconds["lost"] > 0 and spent.seconds["restore"] > 0
    found = status.of(gone_back)
    assert (found.state, found.counts["spike"]) == ("done", 1)
    assert found.step == found.steps == STEPS - 1 - 2 * MARGIN


@pytest.mark.system
def test_the_event_is_replayed_to_the_bit(gone_back, spiky):
    """From the checkpoint right before it, which the run has moved away."""
    name = event(gone_back)["event"]
    command = [sys.executable, "-m", "jaxlm", "replay", name, f"--workdir={gone_back}"]
    code, output = runs.finish(command, gone_back.with_suffix(".replay"))
    assert code == 0, output
    place = gone_back / "abandoned" / name / "full" / str(SPIKE - 1)
    assert f"parameters after step {SPIKE - 1}, from {place}" in output
    assert output.count(": the same") == 2
    report = json.loads((gone_back / "events" / name / "replay.json").read_text())
    assert report["exact"] and report["batch"]["loss"] > 2 * report["batch_before"]["loss"]
    early = runs.checkpoint(gone_back, SPIKE - MARGIN - 4)
    found = {}
    for flags in ([], ["--exact"]):
        log = gone_back.with_suffix(f".replay{len(flags)}")
        code, found[len(flags)] = runs.finish([*command, f"--from={early}", *flags], log)
        assert code == 0, found
    assert found[0].count(": of other parameters") == 2 and found[1].count(": the same") == 2


@pytest.mark.system
def test_an_event_after_the_run_has_gone_back_is_replayed_to_the_bit(tmp_path):
    """From a checkpoint that knew nothing of the rows that were jumped over since."""
    workdir, second = tmp_path / "run", 90
    command = runs.train(numbers.spiky(tmp_path / "spiky", second), workdir, *SPIKY)
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 0, output
    events = [e for e in workdirs.lines(workdir / "events.jsonl") if e["kind"] == "spike"]
    assert [e["step"] for e in events] == [SPIKE, second - 1 - 2 * MARGIN]
    assert events[1]["positions"] == list(range(4 * (second - 1), 4 * second))
    early = runs.checkpoint(workdir, SPIKE - MARGIN - 4)
    name = events[1]["event"]
    replay = [sys.executable, "-m", "jaxlm", "replay", name, f"--workdir={workdir}"]
    code, output = runs.finish([*replay, f"--from={early}", "--exact"], tmp_path / "replay")
    assert code == 0 and output.count(": the same") == 2, output


@pytest.mark.system
def test_it_ends_as_one_that_never_saw_the_rows(gone_back, spiky, tmp_path):
    workdir = tmp_path / "run"
    workdir.mkdir()
    (workdir / skips.FILE).write_text(json.dumps([list(ROWS)]))
    code, output = runs.finish(runs.train(spiky, workdir, *SPIKY), tmp_path / "log")
    assert code == 0, output
    assert "spike" not in output
    last = STEPS - 1 - 2 * MARGIN
    runs.assert_same(runs.state(workdir, last), runs.state(gone_back, last))


KILLED_AT = """
import os, signal, sys
from jaxlm import cli, rollback

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
sys.exit(cli.main(sys.argv[1:]))
"""
GAPS = {
    "before the rows are written": "rollback.skips.save = kill",
    "before a checkpoint is moved": "rollback.checkpoint.abandon = kill",
    "between two moves": """
move, moved = rollback.checkpoint.abandon, []
def once(*args):
    if moved:
        kill()
    moved.append(move(*args))
    return moved[-1]
rollback.checkpoint.abandon = once""",
    "before the state is restored": """
from jaxlm import train
back = rollback.go_back
def then_kill(*args):
    back(*args)
    kill()
rollback.go_back = then_kill""",
}


@pytest.mark.system
@pytest.mark.parametrize("gap", GAPS)
def test_killed_on_the_way(gap, spiky, killed_before, gone_back, tmp_path):
    workdir = shutil.copytree(killed_before, tmp_path / "run")
    program = KILLED_AT.format(patch=GAPS[gap])
    command = runs.train(spiky, workdir, *SPIKY)
    killed = [sys.executable, "-c", program, *command[3:]]
    code, output = runs.finish(killed, tmp_path / "killed.log")
    assert code == -signal.SIGKILL and f"step {SPIKE} is a spike" in output, output
    code, output = runs.finish(command, tmp_path / "again.log")
    assert code == 0, output
    last = STEPS - 1 - 2 * MARGIN
    runs.assert_same(runs.state(workdir, last), runs.state(gone_back, last))
    assert runs.committed(workdir)[-1] == last
    moved = workdir / "abandoned" / event(workdir)["event"] / "full"
    assert {p.name for p in moved.iterdir()} >= {str(s) for s in range(SPIKE - MARGIN, SPIKE)}


@pytest.mark.system
def test_a_spike_too_many_stops_the_run(spiky, killed_before, tmp_path):
    workdir = shutil.copytree(killed_before, tmp_path / "run")
    command = runs.train(spiky, workdir, *SPIKY, "guard.max_rollbacks=0")
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 2
    assert "the run has gone back 0 times already: config.guard.max_rollbacks=0" in output


@pytest.mark.system
def test_a_warning_changes_nothing(spiky, killed_before, tmp_path):
    one, other = tmp_path / "warn", tmp_path / "off"
    for workdir, spike in ((one, "warn"), (other, "off")):
        shutil.copytree(killed_before, workdir)
        command = runs.train(spiky, workdir, *SPIKY, f"guard.spike={spike}")
        code, output = runs.finish(command, workdir.with_suffix(".log"))
        assert code == 0 and (f"step {SPIKE} is a spike" in output) == (spike == "warn")
    runs.assert_same(runs.state(one, STEPS), runs.state(other, STEPS))


@pytest.mark.system
def test_a_batch_that_is_skipped_leaves_no_trace(spiky, tmp_path):
    """As if its rows had not been in the order, also in a run that was killed behind it."""
    skipping, without = tmp_path / "skipping", tmp_path / "without"
    command = runs.train(spiky, skipping, *SPIKY, "guard.spike=skip")
    log = tmp_path / "log"
    with runs.running(command, log) as process:
        runs.kill_when(process, lambda: SPIKE + 3 in runs.committed(skipping))
    code, output = runs.finish(command, log)
    assert code == 0, output
    assert f"step {SPIKE} is a spike" in output and "its batch is not learned from" in output
    assert event(skipping)["action"] == "skip"
    assert SPIKE not in runs.committed(skipping)
    without.mkdir()
    (without / skips.FILE).write_text(json.dumps([[4 * (SPIKE - 1), 4 * SPIKE]]))
    code, output = runs.finish(runs.train(spiky, without, *SPIKY), tmp_path / "other.log")
    assert code == 0, output
    found, expected = runs.state(skipping, STEPS), runs.state(without, STEPS - 1)
    for state in (found, expected):
        state.pop("['step']")
    runs.assert_same(found, expected)
