"""What steps are held against: only those whose loss is of the same."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.faults import numbers
from jaxlm import config, judge
from jaxlm.config import Config, DataConfig
from jaxlm.data.corpus import open_corpus
from jaxlm.data.skips import NO_SKIPS
from jaxlm.guard import NO_LIMITS
from jaxlm.judge import Judge
from jaxlm.metrics import Read

CONFIG = Config(data=DataConfig(source="synthetic", seq_len=16))


def a_run(cfg: Config = CONFIG, directory: Any = None) -> Any:
    return SimpleNamespace(cfg=cfg, corpus=open_corpus(cfg), workdir=directory, skips=NO_SKIPS)


def read(step: int, size: int, loss: float | None = None) -> Read:
    positions_B = size * (step - 1) + np.arange(size)
    noise = 0.01 * np.sin(step) if loss is None else loss
    before = int(positions_B[0])
    return Read(step, before, positions_B, 3.0 + noise, 1.0, True, np.zeros(2, np.int32))


def test_where_a_run_has_its_edges(tmp_path):
    cfg = config.load(numbers.spiky(tmp_path))
    weights = (("good", 1.0),)
    mixture = [{"until": "80 rows", "weights": weights}, {"until": None, "weights": weights}]
    path = tmp_path / "staged.json"
    data = json.loads((tmp_path / "run.json").read_text())
    data["data"]["mixture"] = mixture
    path.write_text(json.dumps(data))
    assert judge.jumps(a_run(cfg)) == (240,)  # its dropout ends there
    assert judge.jumps(a_run(config.load(path, ("optim.warmup=3 steps",)))) == (80, 240)
    assert judge.edges(a_run(config.load(path, ("optim.warmup=3 steps",)))) == (12, 80, 240)


def test_steps_before_a_change_of_the_batch_size_are_no_measure(tmp_path):
    run = a_run(CONFIG, tmp_path)
    first = Judge(run, {}, None)  # pyright: ignore
    for step in range(1, 200):
        assert first(read(step, 8)) is None
    memory = json.loads(json.dumps(first.memory))
    rows = np.arange(8 * 200, 8 * 201)
    guard = replace(CONFIG.guard, spike="skip")
    same = replace(CONFIG, guard=guard)
    other = replace(same, train=replace(CONFIG.train, batch_size=4))
    assert Judge(a_run(same, tmp_path), memory, None).limits(201, rows) != NO_LIMITS  # pyright: ignore
    changed = Judge(a_run(other, tmp_path), memory, None)  # pyright: ignore
    assert changed.limits(201, rows) == NO_LIMITS
    assert changed.memory["guard"]["left_out"] == memory["guard"]["left_out"]


class Silent:
    """A writer that writes nothing."""

    def event(self, values: dict, line: str) -> None:
        pass


@pytest.mark.parametrize(
    ("before", "keeps"),
    [
        ((), [True, True, False]),
        (("other",), [True, False, False]),
        (("other", "00000201-1600-spike"), [False, True, False]),
    ],
)
def test_evidence_is_kept_of_so_many_events_of_a_run(tmp_path, before, keeps):
    """Of those before a resume too; one that comes again counts once."""
    for event in before:
        (tmp_path / "events" / event).mkdir(parents=True)
        (tmp_path / "events" / event / "event.json").touch()
    cfg = replace(CONFIG, guard=replace(CONFIG.guard, max_evidence=2))
    found = Judge(a_run(cfg, tmp_path), {}, Silent())  # pyright: ignore
    for step in range(1, 200):
        assert found(read(step, 8)) is None
    verdicts = [found(read(step, 8, 90.0)) for step in (200, 201, 202)]
    assert [v is not None and v.keep_evidence for v in verdicts] == keeps
    assert verdicts[0] is not None and verdicts[0].event["skips"] == []
