"""Shards that are damaged, slow, or gone."""

import re
import shutil
import sys
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
                harmless += 1
                runs.assert_same(runs.state(workdir), whole)
            else:
                assert (code, shard.name in output) == (2, True), f"{code}: {tail(output)}"
            place.finish(command, f"{i}-again")
            runs.assert_same(runs.state(workdir), whole)
        shard.write_bytes(good)
    outcome.notes.append(f"{harmless} of the bits were of no record")
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
    """Moves the corpus away under a run in its steps, and then under none."""
    outcome, workdir = Outcome(), place.root / "run"
    whole = runs.state(place.undisturbed(place.small, *PLAIN))
    corpus, away = place.small.parent / "small", place.root / "away"
    command = runs.train(place.small, workdir, *PLAIN, runs.SLOWLY)
    log = place.root / "run.log"
    with outcome.trying(), runs.running(command, log) as process:
        runs.wait_until(lambda: bool(runs.committed(workdir)), process)
        corpus.rename(away)
        code = process.wait(runs.PATIENCE_S)  # its files are open: it needs no more of them
        assert code in (0, 2), f"exit code {code}"
        if code == 2:
            assert str(corpus) in log.read_text(), "the corpus is not named"
        outcome.notes.append("the run under way " + ("ended well" if code == 0 else "stopped"))
    if corpus.exists():
        shutil.move(corpus, away)
    if place.tries > 1:
        _refused_without(place, outcome, corpus, away)
    else:
        away.rename(corpus)
    with outcome.afterwards():
        place.finish(command, "again")
        runs.assert_same(runs.state(workdir), whole)
    return outcome


def _refused_without(place: Place, outcome: Outcome, corpus: Path, away: Path) -> None:
    command = runs.train(place.small, place.root / "new", *PLAIN)
    with outcome.trying():
        output = place.refused(command, "refused", 2)
        assert str(corpus / "manifest.json") in output, "the manifest is not named"
        assert "Traceback" not in output
    away.rename(corpus)
