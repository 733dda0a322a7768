"""A work directory in an object store that fails, under processes that are killed."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from bench import runs, stores
from bench.faults.place import PLAIN, Outcome, Place, tail
from bench.stores import Fault, Proxy
from jaxlm import storage
from jaxlm import workdir as workdirs

STEPS = 60
KILLS = 2
"""Of each run, besides what its store does."""
KINDS = ("503", "reset", "truncated", "slow")
WITHIN = 40
"""Faults come to one of so many first requests of their kind."""
ANSWERED = ("GET", "POST")
"""Methods whose answers have a body, which may be truncated."""
METHODS = {"s3": ("GET", "HEAD", "PUT"), "gs": ("GET", "POST")}
OVERRIDES = (
    *PLAIN,
    f"train.end={STEPS} steps",
    "optim.warmup=0 steps",
    "checkpoint.every=10 steps",
    "checkpoint.keep=2",
)


def failing(place: Place) -> Outcome:
    """A run of two processes in each kind of store, with `place.tries` faults in all."""
    outcome = Outcome()
    whole = place.root / "undisturbed"
    place.finish(runs.launch(place.small, whole, *OVERRIDES), "undisturbed")
    for scheme, open_store in (("s3", stores.s3), ("gs", stores.gcs)):
        with open_store() as store, outcome.trying(place.tries // 2):
            requests = place.tries // 2 - KILLS
            store.faults.extend(_fault(place, scheme) for _ in range(requests))
            _train(place, store)
            assert not [fault for fault in store.faults if fault.times], "faults that never came"
            here = place.root / store.scheme
            copy(store.url("run"), here)
            assert workdirs.status(here)["state"] == "done"
            assert any(start.step for start in workdirs.history(here)), "no start resumed"
            _assert_same_losses(here, whole)
            runs.assert_same(runs.state(here, STEPS), runs.state(whole, STEPS))
        outcome.notes.append(f"{store.scheme}://: {KILLS} kills, {requests} requests that failed")
    return outcome


def _fault(place: Place, scheme: str) -> Fault:
    """Of some request, early or late, for a checkpoint or any other file."""
    method = place.random.choice(METHODS[scheme])
    kinds = KINDS if method in ANSWERED else tuple(kind for kind in KINDS if kind != "truncated")
    return Fault(
        place.random.choice(kinds),
        place.random.choice(("run", "checkpoints")),
        method=method,
        after=place.random.randrange(WITHIN),
    )


def _assert_same_losses(here: Path, whole: Path) -> None:
    """A start does not report its first step."""
    unreported = {start.step + 1 for start in workdirs.history(here)}
    expected = {n: loss for n, loss in runs.losses(whole).items() if n not in unreported}
    assert runs.losses(here).items() >= expected.items(), "other losses were logged"


def _train(place: Place, store: Proxy) -> None:
    """To the end; killed on the way, once a process and once all of them."""
    log = place.root / f"{store.scheme}.log"
    logs = f"--logs={place.root / store.scheme}-logs"
    command = runs.launch(place.small, store.url("run"), *OVERRIDES, logs)
    slowly = [*command, f"--config.{runs.SLOWLY}"]
    with runs.running(slowly, log) as launcher:
        _kill(place, launcher, log, [place.random.choice([0, 1])], starts=1)
        _kill(place, launcher, log, [0, 1], starts=2, saves=2)
        launcher.kill()
    code, output = runs.finish(command, log)
    assert code == 0, tail(output)


def _kill(
    place: Place,
    launcher: subprocess.Popen,
    log: Path,
    which: list[int],
    starts: int,
    saves: int = 1,
) -> None:
    """After a save of this start has begun, the run's first or a later one, or some steps after.

    When the second begins, the first has ended; one that failed does not count.
    """

    def begun() -> bool:
        said = log.read_text().split("; compiling") if log.exists() else []
        if len(said) <= starts:
            return False
        failed = len(re.findall("^process 0: .* could not be saved", said[starts], re.M))
        at = [10 * save + 2 for save in range(saves + failed, STEPS // 10)]
        return any(f"step     {n}/" in said[starts] for n in at)

    runs.wait_until(begun, launcher)
    time.sleep(place.random.uniform(0, 1))
    pids = runs.processes(launcher)
    assert pids.keys() >= set(which), "the run ended before it was killed"
    for i in which:
        os.kill(pids[i], signal.SIGKILL)
    if len(which) > 1:
        launcher.kill()


def copy(url: str, directory: Path) -> None:
    """Copies a directory of a store here."""
    for name in storage.sizes(url, [""]):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        storage.download(f"{url}/{name}", directory / name)
