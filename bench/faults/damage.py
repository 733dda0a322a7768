"""Checkpoints that are damaged, and what a run makes of them."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place
from jaxlm.integrity import CHECKSUMS
from jaxlm.workdir import MARKER

NEWEST = 60
OVERRIDES = (*PLAIN, f"train.end={NEWEST} steps", "checkpoint.every=20 steps")


def _truncate(place: Place, victim: Path) -> None:
    data = victim.read_bytes()
    victim.write_bytes(data[: place.random.randrange(len(data))])


def _flip(place: Place, victim: Path) -> None:
    data = bytearray(victim.read_bytes())
    data[place.random.randrange(len(data))] ^= 1 << place.random.randrange(8)
    victim.write_bytes(data)


def _remove(_: Place, victim: Path) -> None:
    victim.unlink()


def _unmark(_: Place, victim: Path) -> None:
    marker = next(p / MARKER for p in victim.parents if p.name == str(NEWEST))
    marker.unlink()


KINDS: dict[str, Callable[[Place, Path], None]] = {
    "truncated": _truncate,
    "flipped bit": _flip,
    "missing file": _remove,
    "missing marker": _unmark,
}


def damage(place: Place) -> Outcome:
    """Each try damages the newest checkpoint of a copy of one run, in one way, at random."""
    outcome = Outcome()
    whole = place.undisturbed(place.small, *OVERRIDES)
    expected = runs.state(whole, NEWEST)
    for i in range(place.tries):
        kind = list(KINDS)[i % len(KINDS)]
        workdir = place.root / f"{i}-{kind.replace(' ', '-')}"
        shutil.copytree(whole, workdir)
        newest = runs.checkpoint(workdir, NEWEST)
        names = [*json.loads((newest / CHECKSUMS).read_text()), CHECKSUMS]
        victim = newest / place.random.choice(
            [name for name in names if (newest / name).stat().st_size > 0]
        )
        KINDS[kind](place, victim)
        with outcome.trying():
            _refused_and_gone_round(place, workdir)
            runs.assert_same(runs.state(workdir, NEWEST), expected)
        shutil.rmtree(workdir)
    outcome.notes.append(", ".join(KINDS) + " in turn")
    return outcome


def _refused_and_gone_round(place: Place, workdir: Path) -> None:
    before = contents(workdir)
    command = runs.train(place.small, workdir, *OVERRIDES)
    output = place.refused(command, f"{workdir.name}-refused", 2)
    assert str(runs.checkpoint(workdir, NEWEST)) in output, "the checkpoint is not named"
    assert before <= contents(workdir), "a file of a checkpoint was changed"
    output = place.finish([*command, "--fallback"], f"{workdir.name}-fallback")
    assert "resuming at step 40" in output, "it did not go on from the one before"
    assert before <= contents(workdir), "a file of a checkpoint was overwritten"


def contents(workdir: Path) -> Counter[str]:
    """Digests of all files of checkpoints, wherever they were moved, and how many have each."""
    places = (workdir / "checkpoints", workdir / "abandoned")
    files = (p for place in places for p in place.rglob("*") if p.is_file())
    return Counter(hashlib.sha256(p.read_bytes()).hexdigest() for p in files)
