"""Processes that are killed, or asked to stop, again and again."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place, assert_each_once, recorded
from jaxlm import workdir as workdirs

MOMENTS = ("steps", "start", "steps", "compiling")
"""What an attempt is at when the next kill comes: steps and saves are those behind its first new
checkpoint. Every other one, so that the launcher sees progress and does not give up."""
GRACE_S = 30.0
"""Between the notice and the end of a spot machine."""
OVERRIDES = (
    *PLAIN,
    "checkpoint.every=3 steps",
    "checkpoint.keep=3",
)


def command(place: Place, name: str) -> list[str]:
    """A run of two processes that writes down its steps."""
    end = f"train.end={place.steps} steps"
    launch = runs.launch(place.config, place.root / name, *OVERRIDES, end)
    return recorded(launch, place.root / f"{name}.steps")


def kills(place: Place) -> Outcome:
    """SIGKILL at random moments, over as many runs as it takes."""
    outcome = Outcome()
    place.finish(command(place, "undisturbed"), "undisturbed")
    numbers, together, went_on = 0, 0, 0
    while outcome.tried < place.tries:
        name, numbers = f"run-{numbers}", numbers + 1
        done, all_killed = _killed_to_its_end(place, name, outcome.tried)
        together += all_killed
        with outcome.trying(done):
            log = (place.root / f"{name}.log").read_text()
            assert log.count("starting again in") >= done - all_killed, "a kill ended no attempt"
            _assert_as_undisturbed(place, name)
        went_on += sum(start.step > 0 for start in workdirs.history(place.root / name))
    with outcome.afterwards():
        assert went_on > 0, "no kill came behind a checkpoint"
    outcome.notes.append(
        f"{numbers} runs of {place.steps} steps; all processes at once {together} times; "
        f"{went_on} starts went on from a checkpoint"
    )
    return outcome


def _assert_as_undisturbed(place: Place, name: str) -> None:
    workdir, reference = place.root / name, place.root / "undisturbed"
    assert workdirs.status(workdir)["state"] == "done", "the run did not end"
    runs.assert_same(runs.state(workdir, place.steps), runs.state(reference, place.steps))
    assert_each_once(place.root / f"{name}.steps", place.root / "undisturbed.steps", place.steps)


def _killed_to_its_end(place: Place, name: str, before: int) -> tuple[int, int]:
    """Runs to the end; how many kills came on the way, and how many of them were of all.

    `before`: kills of the runs before it.
    """
    log, done, together = place.root / f"{name}.log", 0, 0
    most = place.tries - before
    while True:
        with runs.running(command(place, name), log) as launcher:
            while done < most:
                moment = MOMENTS[(before + done) % len(MOMENTS)]
                victims = _victims(place, launcher, log, moment)
                if not victims:
                    break
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                done += 1
                together += len(victims) > 1
                if len(victims) > 1:
                    break
            if launcher.poll() is None and done >= most:
                launcher.wait(2 * runs.PATIENCE_S)
            code = launcher.wait(runs.PATIENCE_S)
        if code == 0:
            return done, together
        assert code == -signal.SIGKILL, f"{name}: the launcher ended with exit code {code}"


def _victims(place: Place, launcher: subprocess.Popen, log: Path, moment: str) -> list[int]:
    """Waits for the moment, and a random while; the pids to kill, none if the run has ended."""
    delay_s = place.random.uniform(0, 6 if moment == "start" else 2)
    kind = place.random.choice(["zero", "one", "all"])
    workdir = log.with_suffix("")
    begun, saved = _begun(log), runs.committed(workdir)
    come = {
        "start": lambda: True,
        "compiling": lambda: _begun(log) > begun,
        "steps": lambda: runs.committed(workdir)[-1:] > saved[-1:],
    }[moment]
    end = time.monotonic() + runs.PATIENCE_S
    while launcher.poll() is None:
        assert time.monotonic() < end, f"no attempt has come to its {moment}"
        if len(runs.processes(launcher)) == 2 and come():
            break
        time.sleep(0.01)
    time.sleep(delay_s)
    pids = runs.processes(launcher)
    if launcher.poll() is not None or len(pids) < 2:
        return [] if launcher.poll() is not None else _victims(place, launcher, log, moment)
    return {"zero": [pids[0]], "one": [pids[1]], "all": [launcher.pid, pids[0], pids[1]]}[kind]


def _begun(log: Path) -> int:
    """Attempts that have begun to compile."""
    return log.read_text().count("; compiling") if log.exists() else 0


def terms(place: Place) -> Outcome:
    """SIGTERM to a process or to the launcher, over as many runs as it takes."""
    outcome, number, slowest = Outcome(), 0, 0.0
    place.finish(command(place, "undisturbed"), "undisturbed")
    while outcome.tried < place.tries:
        name, number = f"run-{number}", number + 1
        slowest = max(slowest, _stopped_to_its_end(place, name, outcome))
        with outcome.afterwards():
            _assert_as_undisturbed(place, name)
    outcome.notes.append(f"from the signal until all was saved: at most {slowest:.1f} s")
    return outcome


def _stopped_to_its_end(place: Place, name: str, outcome: Outcome) -> float:
    """Runs to the end, asked to stop once a start; the longest time from a signal to the save."""
    log, starts, slowest = place.root / f"{name}.log", 0, 0.0
    while True:
        with runs.running(command(place, name), log) as launcher:
            while outcome.tried < place.tries and _in_its_steps(place, launcher, log, starts):
                starts += 1
                whom = place.random.choice([0, 1, None])
                time.sleep(place.random.uniform(0, 1))
                with outcome.trying():
                    slowest = max(slowest, _ask(launcher, whom, log, place.root / name))
                if whom is None:
                    break
            code = launcher.wait(2 * runs.PATIENCE_S)
        if code == 0:
            return slowest
        assert code == 75, f"{name}: the launcher ended with exit code {code}"


def _in_its_steps(place: Place, launcher: subprocess.Popen, log: Path, starts: int) -> bool:
    """Waits for the steps of the next start; False if the run came near its end."""
    end = time.monotonic() + runs.PATIENCE_S
    while launcher.poll() is None:
        assert time.monotonic() < end, "no start has come to its steps"
        said = log.read_text().split("; compiling")
        steps = re.findall(r"^step +(\d+)/", said[-1], re.M)
        if len(said) > starts + 1 and steps:
            return int(steps[-1]) < 0.75 * place.steps
        time.sleep(0.01)
    return False


def _ask(launcher: subprocess.Popen, whom: int | None, log: Path, workdir: Path) -> float:
    """Asks one process, or the launcher, to stop; seconds until all is saved."""
    saved = re.compile(r"stopped as asked: step (\d+) is saved")
    before = len(saved.findall(log.read_text()))
    pids = {None: launcher.pid, **runs.processes(launcher)}
    assert whom in pids
    step, start_s = workdirs.status(workdir)["step"], time.monotonic()
    os.kill(pids[whom], signal.SIGTERM)
    while len(saved.findall(log.read_text())) == before:
        assert time.monotonic() < start_s + runs.PATIENCE_S, "not saved"
        assert launcher.poll() is None or launcher.returncode == 75, "ended without saving"
        time.sleep(0.01)
    took_s = time.monotonic() - start_s
    found = int(saved.findall(log.read_text())[-1])
    assert found in runs.committed(workdir), f"step {found} is not saved as it was said"
    assert found >= step, f"step {found} is saved, and the run had come to step {step}"
    assert took_s <= GRACE_S, f"saved only {took_s:.1f} s after the signal"
    return took_s
