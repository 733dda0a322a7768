"""Where a run goes back to, and what it jumps over: decided before anything is moved."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import runs
from jaxlm import rollback, run, workdir
from jaxlm.config import Config, DataConfig, EvaluateConfig, TrainConfig
from jaxlm.data import skips
from jaxlm.errors import UserError
from jaxlm.judge import GoBack
from jaxlm.run import Run
from jaxlm.schema import ConfigError
from tests import tiny

EVENT = "00000064-504-spike"
CONFIG = Config(
    model=tiny.MODEL,
    data=DataConfig(source="synthetic", seq_len=tiny.T),
    train=TrainConfig(batch_size=8, rows_per_device=1, end="1000 steps"),
    evaluate=EvaluateConfig(every=None),
)


@contextlib.contextmanager
def prepared(directory: Path, positions: dict[int, int]) -> Iterator[Run]:
    """A run with full checkpoints: step -> position."""
    found = run.prepare(CONFIG, directory)
    for step, position in positions.items():
        notes = {"position": position, "skips": []}
        found.checkpoints.save({"a": np.arange(3)}, step, notes)
        assert found.checkpoints.wait() is None
    try:
        yield found
    finally:
        found.checkpoints.close()
        found.snapshots.close()


def test_a_run_is_not_left_without_a_checkpoint(tmp_path):
    """The margin reaches further back than those that are kept."""
    with prepared(tmp_path, {40: 320, 50: 400, 60: 480}) as found:
        workdir.write_status(tmp_path, "training", 63, 504, 8000, saved=60)
        cfg = replace(found.cfg, guard=replace(found.cfg.guard, margin="30 steps"))
        with pytest.raises(UserError) as e:
            rollback.go_back(replace(found, cfg=cfg), GoBack(EVENT, (264, 744)))
    assert f"all checkpoints (steps 60, 50, 40) have learned from rows of {EVENT}" in str(e.value)
    assert "config.guard.margin='30 steps', config.checkpoint.every=None" in str(e.value)
    assert "every_minutes=360.0 and keep=3 they do not reach so far back" in str(e.value)
    assert runs.committed(tmp_path) == [40, 50, 60]
    assert not (tmp_path / skips.FILE).exists() and not (tmp_path / "abandoned").exists()
    assert workdir.status(tmp_path)["saved"] == 60


def test_nor_by_a_start_after_the_rows_were_written(tmp_path):
    with prepared(tmp_path, {50: 400, 60: 480}) as found:
        now = replace(found, skips=found.skips.with_event(264, 744, EVENT))
        with pytest.raises(UserError, match="none would be left to go back to"):
            rollback.abandon_overtaken(now)
    assert runs.committed(tmp_path) == [50, 60]


@pytest.mark.parametrize("status", [None, b""])
def test_no_status_that_can_be_read_is_needed(tmp_path, status):
    """A run that has not reported yet, or whose machine lost its power."""
    with prepared(tmp_path, {50: 400, 60: 480}) as found:
        if status is not None:
            (tmp_path / "status.json").write_bytes(status)
        now = rollback.go_back(found, GoBack(EVENT, (440, 528)))
    assert now.skips.windows == ((440, 528),) and runs.committed(tmp_path) == [50]
    said = workdir.status(tmp_path)
    assert (said["state"], said["step"], said["position"]) == ("training", 50, 400)
    assert said["saved"] == 50


def test_behind_a_checkpoint_of_another_batch_size_whole_batches_are_left(tmp_path):
    """Steps of 4 rows up to row 480, then of 8: the one before lies between two of these."""
    with prepared(tmp_path, {103: 412, 120: 480}) as found:
        now = rollback.go_back(found, GoBack(EVENT, (440, 592)))
        assert now.skips.windows == ((436, 592),)
        assert now.skips.count(412, found.cfg.end) % 8 == 0
    assert runs.committed(tmp_path) == [103]
    assert json.loads((tmp_path / skips.FILE).read_text()) == [[436, 592, EVENT]]


def test_a_window_moved_back_may_overtake_another_checkpoint(tmp_path):
    """Seven rows more, of which one lies behind the newest that is left."""
    with prepared(tmp_path, {100: 401, 109: 435, 120: 480}) as found:
        now = rollback.go_back(found, GoBack(EVENT, (436, 594)))
        assert now.skips.windows[0][1] == 594
        assert now.skips.count(401, found.cfg.end) % 8 == 0
    assert runs.committed(tmp_path) == [100]


def test_a_run_without_a_checkpoint_begins_anew(tmp_path):
    with prepared(tmp_path, {}) as found:
        now = rollback.go_back(found, GoBack(EVENT, (16, 32)))
    assert now.skips.entries == [[16, 32, EVENT]]


@pytest.mark.parametrize(
    ("margin", "keep", "more", "refused"),
    [
        ("60 steps", 3, {}, False),
        ("61 steps", 3, {}, True),
        ("1 rows", 1, {}, True),
        ("0 steps", 1, {}, False),
        ("61 steps", 3, {"keep_every": 300}, False),
        ("61 steps", 3, {"every": None}, False),
    ],
)
def test_a_margin_that_checkpoints_do_not_reach_over_is_refused(margin, keep, more, refused):
    checkpoint = replace(CONFIG.checkpoint, **{"every": "30 steps", "keep": keep, **more})
    guard = replace(CONFIG.guard, spike="rollback", margin=margin)
    cfg = replace(CONFIG, checkpoint=checkpoint, guard=guard)
    rollback.check_margin(replace(cfg, guard=replace(guard, spike="warn")))
    with pytest.raises(ConfigError) if refused else contextlib.nullcontext() as e:
        rollback.check_margin(cfg)
    if margin == "61 steps" and refused:
        said = str(e and e.value)
        assert "margin='61 steps' is 488 rows, but checkpoint.every='30 steps' and keep=3" in said
        assert "reach back only 480 at times" in said
