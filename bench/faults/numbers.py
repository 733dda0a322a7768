"""Numbers that go wrong: those of the model, and those of the wall clock."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place
from bench.small_corpus import make_corpus, read_shard, write_shard
from jaxlm import config
from jaxlm.data import manifest as manifests
from jaxlm.data import skips
from jaxlm.data.corpus import open_corpus
from jaxlm.data.source import TrainRows

STEPS, SPIKE, MARGIN = 100, 71, 2
"""The spike is the batch of that step; batches have 4 rows."""
ROWS = (4 * (SPIKE - 1 - MARGIN), 4 * (SPIKE + MARGIN))
SPIKY = (
    f"train.end={STEPS} steps",
    "optim.lr=1e-2",
    "checkpoint.every=1 steps",
    "checkpoint.keep=100",
    "evaluate.every=None",
    "model.dropout=()",
    "guard.spike=rollback",
    "guard.window=32",
    f"guard.margin={MARGIN} steps",
)


def spiky(root: Path) -> Path:
    """A config whose corpus has one batch of random tokens, after a loss that has long fallen."""
    path = runs.config_file(
        root / "run.json", make_corpus(root / "data", {"good": [400]}, tokenizer=True)
    )
    train = open_corpus(config.load(path)).train
    assert isinstance(train, TrainRows)
    at = train.order.locate(np.arange(4 * (SPIKE - 1), 4 * SPIKE))
    name, vocab_size = "shards/good-train-00000.array_record", runs.BASE.model.vocab_size
    chunks = read_shard(root / "data" / name).copy()
    shape = chunks[at.row].shape
    chunks[at.row] = np.random.default_rng(0).integers(4, vocab_size, shape, chunks.dtype)
    shard = write_shard(root / "data", name, "good", "train", chunks)
    manifest = manifests.load(root / "data" / "manifest.json")
    manifests.save(replace(manifest, shards=(shard,)), root / "data" / "manifest.json")
    return path


def spike(place: Place) -> Outcome:
    """A run that goes back from it, beside one that never sees its rows."""
    outcome, config = Outcome(), spiky(place.root / "spiky")
    went_back, without = place.root / "went-back", place.root / "without"
    last = STEPS - 1 - 2 * MARGIN
    with outcome.trying():
        output = place.finish(runs.train(config, went_back, *SPIKY), "went-back")
        assert f"step {SPIKE} is a spike: loss " in output
        without.mkdir()
        (without / skips.FILE).write_text(json.dumps([list(ROWS)]))
        place.finish(runs.train(config, without, *SPIKY), "without")
        runs.assert_same(runs.state(went_back, last), runs.state(without, last))
    return outcome


def nan(place: Place) -> Outcome:
    """Parameters that overflow."""
    outcome, workdir = Outcome(), place.root / "run"
    more = ("optim.lr=1e30", "checkpoint.every=1 steps", "guard.evidence_norms=False")
    with outcome.trying():
        output = place.refused(runs.train(place.small, workdir, *PLAIN, *more), "run", 2)
        assert "config.guard.max_skipped" in output, output[-300:]
        saved = runs.committed(workdir)
        assert saved, "nothing was saved before"
        for step in saved:
            for name, array in runs.state(workdir, step).items():
                assert np.isfinite(array.astype(np.float64)).all(), f"step {step}: {name}"
    return outcome


# ---- the wall clock ------------------------------------------------------------------------------

DAY_S = 86_400
AFTER_S = 3.0
"""Between the start of training and the jump."""
SHIFTED = f"""
import sys, threading, time
from jaxlm import cli, train
real, jump = time.time, [0.0]
time.time = lambda: real() + jump[0]
loop = train.loop
def jumping(*args):
    threading.Timer({AFTER_S}, lambda: jump.__setitem__(0, float(sys.argv[1]))).start()
    return loop(*args)
train.loop = jumping
sys.exit(cli.main(sys.argv[2:]))
"""


def clock_jump(place: Place) -> Outcome:
    """A day forward, a day back, while saves are due by the clock."""
    outcome, counts = Outcome(), []
    more = (*PLAIN, runs.SLOWLY, "checkpoint.every=None", "checkpoint.every_minutes=0.05")
    whole = place.undisturbed(place.small, *PLAIN)
    for shift in (DAY_S, -DAY_S)[: place.tries]:
        workdir = place.root / f"shift{shift:+}"
        command = runs.train(place.small, workdir, *more)
        start_s = time.monotonic()
        with outcome.trying():
            place.finish([sys.executable, "-c", SHIFTED, str(shift), *command[3:]], workdir.name)
            saves = len(runs.committed(workdir))
            counts.append(saves)
            assert 1 <= saves <= (time.monotonic() - start_s) / 3 + 2, f"{saves} saves"
            runs.assert_same(runs.state(workdir), runs.state(whole))
    outcome.notes.append(f"{counts} saves, one every 3 s")
    return outcome
