"""The loop of `jaxlm train` at the demo's size: what the host takes, and what the steps wait for.

A run of `configs/demo.py` in this process, shorter, with more saves and evaluations, on real shards
of a corpus made for it. Its vocabulary has 320 pieces, so a step is shorter than the demo's.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.small_corpus import make_corpus
from jaxlm import config, train
from jaxlm.activity import HERE, Activity
from jaxlm.corruption import Checks
from jaxlm.metrics import Writer
from jaxlm.run import Options
from jaxlm.signals import Stop
from jaxlm.train import Evaluation, Host

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "demo.py"
EDITS = (
    "model.vocab_size=320",
    "train.end=800 steps",
    "checkpoint.every=100 steps",
    "evaluate.every=200 steps",
    "log.every=25 steps",
)
SOURCES, SHARDS, CHUNKS = 5, 40, 64
"""Sources, shards of each, and records of a shard."""
FIRST = 10
"""Steps that are left out: they compile, and fill what is read ahead."""


class HostFigures(NamedTuple):
    """Shares are of the time of the steps, saves and evaluations."""

    step_s: float
    """From one to the next; the median, as of the others."""
    dispatch_s: float
    """Controls and the call of the step, until it returned."""
    wait_s: float
    """For the rows of a step. Other programs on the machine lengthen a few of the waits a lot."""
    data_share: float
    report_share: float
    save_share: float
    """What the steps waited for; the rest of a save is written beside them."""
    evaluate_share: float
    beside_save: float
    """Time of a step while a save is written, in shares of the other steps'."""
    reports: int
    saves: int
    evaluations: int


class Began(NamedTuple):
    """A step, when it was handed over."""

    at_s: float
    spent: dict[Activity, float]
    saving: bool


def measure() -> HostFigures:
    """Meant for a process of its own."""
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        chunks = {f"source-{i}": (CHUNKS,) * SHARDS for i in range(SOURCES)}
        path = make_corpus(
            Path(root, "corpus"), chunks, heldout={"source-0": (64,)}, chunk_tokens=256,
            tokenizer=True,
        )  # fmt: skip
        cfg = config.load(CONFIG, (*EDITS, f"data.manifest={path}"))
        began: list[Began] = []

        def begin(checks: Checks, *_: Any) -> None:
            saving = checks._run.checkpoints.busy
            began.append(Began(time.perf_counter(), HERE.spent(), saving))

        step = stack.enter_context(_timed(Checks, "step", begin))
        controls = stack.enter_context(_timed(Host, "controls"))
        report = stack.enter_context(_timed(Writer, "_report"))
        evaluations = stack.enter_context(_timed(Evaluation, "__call__"))
        train.train(cfg, Path(root, "run"), Options(), Stop())
    pairs = list(zip(began[FIRST:], began[FIRST + 1 :], strict=False))
    beside = [b.at_s - a.at_s for a, b in pairs if a.saving]
    others = [b.at_s - a.at_s for a, b in pairs if not a.saving]
    first, last = began[FIRST], began[-1]
    spent = {a: last.spent[a] - first.spent[a] for a in Activity}
    whole_s = last.at_s - first.at_s
    waits = [b.spent[Activity.DATA] - a.spent[Activity.DATA] for a, b in pairs]
    handed = [a + b for a, b in zip(controls[FIRST:], step[FIRST:], strict=True)]
    return HostFigures(
        step_s=statistics.median(others),
        dispatch_s=statistics.median(handed),
        wait_s=statistics.median(waits),
        data_share=spent[Activity.DATA] / whole_s,
        report_share=sum(report) / whole_s,
        save_share=spent[Activity.SAVE] / whole_s,
        evaluate_share=spent[Activity.EVALUATE] / whole_s,
        beside_save=statistics.median(beside) / statistics.median(others),
        reports=len(report),
        saves=sum(b.saving > a.saving for a, b in pairs),
        evaluations=len(evaluations) - 2,  # at the beginning and at the end
    )


@contextlib.contextmanager
def _timed(
    owner: Any, name: str, before: Callable[..., None] = lambda *_: None
) -> Iterator[list[float]]:
    """Seconds of each call of a method; `before` is called first with its arguments."""
    method, found = getattr(owner, name), list[float]()

    def call(*args: Any) -> Any:
        before(*args)
        start = time.perf_counter()
        try:
            return method(*args)
        finally:
            found.append(time.perf_counter() - start)

    setattr(owner, name, call)
    try:
        yield found
    finally:
        setattr(owner, name, method)
