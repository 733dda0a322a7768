"""Numbers that go wrong: those of the model, and those of the wall clock."""

import json
import re
import sys
from dataclasses import replace
from itertools import pairwise
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


LOSS_AT, GRADIENT_AT = 41, 81
"""Steps at which the one and the other is not finite."""
SPOILT = f"""
import sys
import jax
import numpy as np
from jaxlm import cli, train

def with_first(x, number):
    changed = np.array(x)
    changed[0] = number
    return jax.device_put(changed, x.sharding)

compile_train_step = train.compile_train_step
def compiled(*args):
    train_step = compile_train_step(*args)
    def spoilt(state, rows_BT, controls):
        at = int(state.step) + 1
        if at == {GRADIENT_AT}:  # what dropout keeps, nothing, is divided by 0
            controls = controls._replace(dropout=np.float32(1))
        if at != {LOSS_AT}:
            return train_step(state, rows_BT, controls)
        good = state.params["norm"]["scale"]
        norm = dict(scale=with_first(good, np.nan))
        state = state._replace(params=dict(state.params, norm=norm))
        found, metrics = train_step(state, rows_BT, controls)
        norm = dict(scale=with_first(found.params["norm"]["scale"], np.asarray(good)[0]))
        return found._replace(params=dict(found.params, norm=norm)), metrics
    return spoilt
train.compile_train_step = compiled
sys.exit(cli.main(sys.argv[1:]))
"""
"""At one step a single parameter is not a number; afterwards that one alone is put right."""


def nan(place: Place) -> Outcome:
    """Parameters that overflow; then a loss and a gradient that are not finite for one step."""
    outcome, workdir = Outcome(), place.root / "run"
    more = (*PLAIN, "guard.evidence_norms=False")
    overflow = ("optim.lr=1e30", "checkpoint.every=1 steps")
    with outcome.trying():
        output = place.refused(runs.train(place.small, workdir, *more, *overflow), "run", 2)
        assert "config.guard.max_skipped" in output, output[-300:]
        saved = runs.committed(workdir)
        assert saved, "nothing was saved before"
        for step in saved:
            for name, array in runs.state(workdir, step).items():
                assert np.isfinite(array.astype(np.float64)).all(), f"step {step}: {name}"
    if place.tries > 1:
        with outcome.trying(2):
            _two_spoilt(place, more)
    return outcome


def _two_spoilt(place: Place, more: tuple[str, ...]) -> None:
    """A run with those two steps, beside one that is told to leave out their rows."""
    spoilt, without = place.root / "spoilt", place.root / "without"
    command = runs.train(place.small, spoilt, *more)
    output = place.finish([sys.executable, "-c", SPOILT, *command[3:]], "spoilt")
    for step, values in (
        (LOSS_AT, "loss nan, gradient norm nan"),
        (GRADIENT_AT, r"loss \d+\.\d+, gradient norm (nan|inf)"),
    ):
        said = rf"^step {step} is not finite: {values};.* its batch is not learned from$"
        assert re.search(said, output, re.M), f"step {step} was not left out"
    without.mkdir()
    rows = [[4 * (step - 1), 4 * step] for step in (LOSS_AT, GRADIENT_AT)]
    (without / skips.FILE).write_text(json.dumps(rows))
    place.finish(runs.train(place.small, without, *more), "without")
    found, expected = runs.state(spoilt), runs.state(without, runs.STEPS - len(rows))
    for state in (found, expected):
        state.pop("['step']")
    runs.assert_same(found, expected)


# ---- the wall clock ------------------------------------------------------------------------------

DAY_S = 86_400
EVERY_S = 5.0
"""Between saves by the clock."""
STEP_S = 0.25
"""Of a step at least: six intervals in a run."""
SHIFTED = f"""
import sys, threading, time
from pathlib import Path
from bench import runs
from jaxlm import cli, train

real, jump = time.time, [0.0]
time.time = lambda: real() + jump[0]
def jumps(shift, workdir):
    while not runs.committed(workdir):
        time.sleep(0.01)
    time.sleep(1)
    jump[0] = shift
    print(f"jumped at {{real()}}", flush=True)

controls = train.Host.controls
def slowly(*args):
    time.sleep({STEP_S})
    return controls(*args)
train.Host.controls = slowly
args = float(sys.argv[1]), Path(sys.argv[2])
threading.Thread(target=jumps, args=args, daemon=True).start()
sys.exit(cli.main(sys.argv[3:]))
"""
"""The jump comes one second after the first save by the clock."""


def clock_jump(place: Place) -> Outcome:
    """A day forward, a day back, between saves that are due by the clock."""
    outcome = Outcome()
    more = (*PLAIN, "checkpoint.every=None", f"checkpoint.every_minutes={EVERY_S / 60}")
    whole = place.undisturbed(place.small, *PLAIN)
    for shift in (DAY_S, -DAY_S)[: place.tries]:
        workdir = place.root / f"shift{shift:+}"
        command = runs.train(place.small, workdir, *more)
        args = [str(shift), str(workdir), *command[3:]]
        with outcome.trying():
            output = place.finish([sys.executable, "-c", SHIFTED, *args], workdir.name)
            said = re.search(r"^jumped at ([\d.]+)$", output, re.M)
            assert said, "the clock did not jump"
            outcome.notes.append(_kept_their_interval(workdir, float(said[1])))
            runs.assert_same(runs.state(workdir), runs.state(whole))
    return outcome


def _kept_their_interval(workdir: Path, jumped: float) -> str:
    """Saves by the clock, on both sides of the jump; what was found."""
    by_clock = runs.committed(workdir)[:-1]  # the last one is that of the end
    begun = [runs.save_times(workdir, step)[0] for step in by_clock]
    before, after = sum(t < jumped for t in begun), sum(t > jumped for t in begun)
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    apart = " ".join(f"{gap:.1f}" for gap in gaps)
    found = f"saves: {before} before the jump, {after} after it, {apart} s apart"
    assert before and after, found
    assert all(EVERY_S - 0.5 <= gap <= 2 * EVERY_S for gap in gaps), found
    return found
