"""Step <-> row over resumes, changed batches and skipped windows, against a run step by step."""

import random

import numpy as np
import pytest

from jaxlm.errors import UserError
from jaxlm.lineage import Lineage
from jaxlm.workdir import Start


def start(
    step: int, position: int, batch_size: int = 8, skips: tuple[tuple[int, int], ...] = ()
) -> Start:
    windows = [list(window) for window in skips]
    return Start(step, position, batch_size, 1, 8, [1, 8, 1], "data", windows, [], "2026-01-01")


def batch(lineage: Lineage, step: int) -> tuple[int, int]:
    """(First position, rows), of a batch without a gap."""
    positions = lineage.batch(step)
    assert (np.diff(positions) == 1).all()
    return int(positions[0]), len(positions)


def test_the_rows_of_a_step_over_resumes_and_changed_batches():
    """Run to step 12, killed, resumed at 10 with twice the batch, then at 15, then at 12 again."""
    starts = [start(0, 0), start(10, 80, 16), start(15, 160, 4), start(12, 112, 8)]
    lineage = Lineage(starts)
    assert {step: batch(lineage, step) for step in (1, 10, 11, 12, 13, 20)} == {
        1: (0, 8),
        10: (72, 8),
        11: (80, 16),
        12: (96, 16),
        13: (112, 8),
        20: (168, 8),
    }


class Play:
    """A run played step by step: what each surviving step read, and the starts that were noted."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self.starts: list[Start] = []
        self.steps: list[list[int]] = []
        self.windows: list[tuple[int, int]] = []
        self._position = [0]
        """Before each step."""

    def begin(self) -> None:
        """A start at a step that was done: perhaps with another batch, perhaps with a new window,
        which replaces those that lie ahead."""
        step = self._rng.randrange(max(0, len(self.steps) - 6), len(self.steps) + 1)
        del self.steps[step:], self._position[step + 1 :]
        position = self._position[-1]
        if self._rng.random() < 0.7:
            begin = position + self._rng.randrange(9)
            self.windows = [w for w in self.windows if w[0] < position]
            self.windows.append((begin, begin + self._rng.randrange(1, 12)))
        self._size = self._rng.randrange(1, 7)
        self.starts.append(start(step, position, self._size, tuple(self.windows)))

    def train(self) -> None:
        """Some steps."""
        skipped = {p for begin, stop in self.windows for p in range(begin, stop)}
        for _ in range(self._rng.randrange(12)):
            rows, position = list[int](), self._position[-1]
            while len(rows) < self._size:
                if position not in skipped:
                    rows.append(position)
                position += 1
            self.steps.append(rows)
            self._position.append(position)


def test_against_a_run_played_step_by_step():
    for seed in range(200):
        play = Play(random.Random(seed))
        for _ in range(8):
            play.begin()
            play.train()
        lineage = Lineage(play.starts)
        seen: dict[int, tuple[int, int]] = {}
        for step, rows in enumerate(play.steps, start=1):
            assert lineage.batch(step).tolist() == rows, f"seed {seed}, step {step}"
            seen |= {position: (step, row) for row, position in enumerate(rows)}
        everything = np.arange(max(seen, default=-1) + 1)
        expected = [seen.get(p, (0, -1)) for p in everything.tolist()]
        found = np.stack(lineage.steps(everything), axis=-1)
        assert found.tolist() == [list(e) for e in expected], f"seed {seed}"
        if len(play.steps):
            steps = np.arange(1, len(play.steps) + 1)
            sizes = [len(rows) for rows in play.steps]
            assert lineage.batch_sizes(steps).tolist() == sizes
            last = lineage.positions(steps, np.array(sizes) - 1)
            assert last.tolist() == [rows[-1] for rows in play.steps]


def test_a_window_added_on_a_resume_changes_no_step_before_it():
    """After step 10, of 8 rows, rows 80 to 103 are skipped; before step 13, five more."""
    starts = [start(0, 0), start(10, 80, 8, ((80, 104), (120, 125)))]
    before, after = Lineage(starts[:1]), Lineage(starts)
    assert all((before.batch(s) == after.batch(s)).all() for s in range(1, 11))
    assert after.batch(11).tolist() == [*range(104, 112)]
    assert after.batch(13).tolist() == [125, *range(126, 133)]
    steps, rows = after.steps(np.array([79, 80, 103, 104, 119, 120, 124, 125]))
    assert steps.tolist() == [10, 0, 0, 11, 12, 0, 0, 13]
    assert rows.tolist() == [7, -1, -1, 0, 7, -1, -1, 0]


@pytest.mark.parametrize("step", [0, -1])
def test_steps_are_counted_from_1(step):
    with pytest.raises(UserError, match=f"step {step}: the first step in history.jsonl is 1"):
        Lineage([start(0, 0)]).batch(step)


def test_a_run_that_has_not_begun():
    with pytest.raises(UserError, match=r"no start is there; has a run started\?"):
        Lineage([])


@pytest.mark.parametrize(
    "last", [start(10, 88), start(10, 72), start(10, 80, 8, ((16, 24),)), start(11, 80)]
)
def test_starts_that_do_not_fit_each_other(last):
    with pytest.raises(UserError) as e:
        Lineage([start(0, 0), last])
    assert f"the start at step {last.step} is at row {last.position}, but the" in str(e.value)
    assert "a line is missing or was changed" in str(e.value)
