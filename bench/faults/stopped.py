"""A process that stands still and does not die."""

import os
import re
import signal

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place

HEARTBEAT_S = 10


def stopped(place: Place) -> Outcome:
    """SIGSTOP to one of two processes under the launcher, each time another."""
    outcome = Outcome()
    whole = place.root / "whole"
    place.finish(runs.launch(place.small, whole, *PLAIN), "whole")
    expected = runs.state(whole)
    for i in range(place.tries):
        victim, workdir, log = i % 2, place.root / f"run-{i}", place.root / f"run-{i}.log"
        more = (*PLAIN, runs.SLOWLY, f"watch.heartbeat_seconds={HEARTBEAT_S}")
        with (
            outcome.trying(),
            runs.running(runs.launch(place.small, workdir, *more), log) as launcher,
        ):
            runs.wait_until(lambda workdir=workdir: bool(runs.committed(workdir)), launcher)
            pids = runs.processes(launcher)
            assert victim in pids
            os.kill(pids[victim], signal.SIGSTOP)
            code = launcher.wait(2 * runs.PATIENCE_S)
            assert code == 0, f"exit code {code}"
            named = (
                rf"process {victim} \(.+\) has not been heard of for \d+ s; it was at step \d+ in"
            )
            assert re.search(named, log.read_text()), f"process {victim} is not named"
            assert "starting again in" in log.read_text()
            runs.assert_same(runs.state(workdir), expected)
    return outcome
