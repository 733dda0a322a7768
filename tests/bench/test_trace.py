"""The run that `jaxlm trace` is timed on: what the trainer might have left, over real shards."""

from pathlib import Path

import pytest

from bench import trace
from jaxlm.config import load
from jaxlm.trace import Trace

STEPS, TOKENS = 100, 40


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("trace")
    ids = trace.make_corpus(root / "data", 3_000, TOKENS, 2)
    trace.make_run(root / "run", root / "data", STEPS)
    return root, ids


def test_the_run_has_the_batches_and_windows_that_are_said(made):
    root, ids = made
    opened = Trace(load(root / "run/config.json"), root / "run")
    assert opened.last_step >= STEPS
    for first, end, rows in trace.stages(STEPS):
        for step in (first + 1, end):
            found = opened.step(step)
            assert [row.step for row in found] == [step] * rows
            assert sum(len(row.parts) for row in found) > rows * 2_000 // (TOKENS + 1)
    assert len(opened.lineage.skips.windows) == trace.WINDOWS
    pieces = opened.document(ids[0])
    words = opened.text(pieces)
    assert words and sum(piece.tokens for piece in pieces) <= TOKENS * 9 // 5
    assert any(not sight.step for id in ids for sight in opened.sights(opened.document(id)))


def test_a_look_is_a_command_that_is_timed(made):
    root, ids = made
    looks = dict(trace.looks(ids, STEPS, rounds=1))
    assert list(looks) == [
        "a step of 8 rows",
        "a step of 64 rows",
        "a step of 256 rows",
        "a row of 256",
        "a document",
    ]
    timed = trace.time_commands(root, looks["a document"])
    assert len(timed.clock) == len(timed.processor) == 1
    assert timed.clock[0] > 0 and timed.processor[0] > 0 and timed.lines > 2
