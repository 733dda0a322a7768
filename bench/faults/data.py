"""Shards that are damaged, slow, or gone."""

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place, tail


def bad_shard(place: Place) -> Outcome:
    """Damages a shard, flipped bit and cut in turn; then puts it right, and goes on."""
    outcome, harmless = Outcome(), 0
    whole = runs.state(place.undisturbed(place.small, *PLAIN))
    shards = sorted((place.small.parent / "small" / "shards").glob("*-train-*"))
    for i in range(place.tries):
        shard, workdir = shards[i // 2 % len(shards)], place.root / f"run-{i}"
        good = shard.read_bytes()
        bad = bytearray(good)
        if i % 2:
            del bad[place.random.randrange(len(bad)) :]
        else:
            written = [at for at, byte in enumerate(good) if byte]  # not the zeros between blocks
            bad[place.random.choice(written)] ^= 1 << place.random.randrange(8)
        shard.write_bytes(bad)
        command = runs.train(place.small, workdir, *PLAIN)
        with outcome.trying():
            code, output = runs.finish(command, place.root / f"{i}.log")
            shard.write_bytes(good)
            if code == 0:  # the bit is of no record
                assert i % 2 == 0, "a shard cut short was taken for whole"
                runs.assert_same(runs.state(workdir), whole)
                harmless += 1
            else:
                assert (code, shard.name in output) == (2, True), f"{code}: {tail(output)}"
            place.finish(command, f"{i}-again")
            runs.assert_same(runs.state(workdir), whole)
        shard.write_bytes(good)
    flipped = (place.tries + 1) // 2
    with outcome.afterwards():
        assert harmless < flipped, "no bit was of a record"
    outcome.notes.append(f"{harmless} of {flipped} bits were of no record")
    return outcome


SLOW = """
import sys, time
from jaxlm import cli
from jaxlm.data.source import TrainRows
rows = TrainRows.rows
def slowly(*args):
    time.sleep(2)
    return rows(*args)
TrainRows.rows = slowly
sys.exit(cli.main(sys.argv[1:]))
"""


def slow_shard(place: Place) -> Outcome:
    """Reads of rows that wait, longer than the reading ahead can make up for."""
    outcome, workdir = Outcome(), place.root / "run"
    short = (*PLAIN, "train.end=60 steps")
    whole = place.undisturbed(place.small, *short)
    command = runs.train(place.small, workdir, *short)
    with outcome.trying():
        output = place.finish([sys.executable, "-c", SLOW, *command[3:]], "run")
        shares = [float(share) for share in re.findall(r"data +([\d.]+)%", output)]
        assert shares and sum(shares) > 20 * len(shares), f"data: {shares} % of the time"
        runs.assert_same(runs.state(workdir, 60), runs.state(whole, 60))
        outcome.notes.append(f"{sum(shares) / len(shares):.0f}% of the time is data's")
    return outcome


def vanished(place: Place) -> Outcome:
    """Moves the corpus away under a run in its steps, and under one that was killed half-way."""
    outcome = Outcome()
    whole = place.undisturbed(place.small, *PLAIN)
    with outcome.trying():
        outcome.notes.append("the run under way " + _gone_under_way(place, whole))
    if place.tries > 1:
        with outcome.trying():
            _gone_while_down(place, whole)
    return outcome


@contextlib.contextmanager
def _gone(place: Place) -> Iterator[Path]:
    """Inside, the corpus lies elsewhere; where it should be."""
    corpus, away = place.small.parent / "small", place.root / "away"
    corpus.rename(away)
    try:
        yield corpus
    finally:
        away.rename(corpus)


def _gone_under_way(place: Place, whole: Path) -> str:
    """How the run ended; its files are open, it may need no more of them."""
    workdir, log = place.root / "run", place.root / "run.log"
    command = runs.train(place.small, workdir, *PLAIN, runs.SLOWLY)
    with runs.running(command, log) as process:
        runs.wait_until(lambda: bool(runs.committed(workdir)), process)
        with _gone(place) as corpus:
            code = process.wait(runs.PATIENCE_S)
    assert code in (0, 2), f"exit code {code}"
    if code == 2:
        assert str(corpus) in log.read_text(), "the corpus is not named"
        place.finish(command, "again")
    runs.assert_same(runs.state(workdir), runs.state(whole))
    return "stopped, and went on" if code else "ended well"


def _gone_while_down(place: Place, whole: Path) -> None:
    workdir, half = place.root / "down", runs.STEPS // 2
    shutil.copytree(whole, workdir)
    runs.go_back(workdir, half)
    command = runs.train(place.small, workdir, *PLAIN)
    with _gone(place) as corpus:
        output = place.refused(command, "refused", 2)
        assert str(corpus / "manifest.json") in output, "the manifest is not named"
        assert "Traceback" not in output
    output = place.finish(command, "back")
    assert f"resuming at step {half}" in output, "it did not go on from its checkpoint"
    runs.assert_same(runs.state(workdir), runs.state(whole))
