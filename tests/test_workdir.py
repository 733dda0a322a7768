"""The small files of a run: written whole, and read back after a kill."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxlm import site, workdir
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.workdir import Start


def test_history_comes_back(tmp_path):
    rest = (1, 8, [1, 8, 1], "data", [[80, 96]], [["optim.lr", 1, 2]], "2026-01-01")
    starts = [Start(0, 0, 8, *rest), Start(10, 80, 16, *rest)]
    for s in starts:
        workdir.append_start(tmp_path, s)
    assert workdir.history(tmp_path) == starts


def test_a_line_torn_by_a_kill_is_left_out_and_ended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert workdir.metrics(tmp_path) == [{"step": 1, "loss": 2.0}]
    with workdir.open_lines(path) as f:
        f.write('{"step": 3, "loss": 1.0}\n')
    assert [line["step"] for line in workdir.metrics(tmp_path)] == [1, 3]


def test_of_a_step_logged_twice_the_last_counts(tmp_path):
    """As after a resume from an earlier checkpoint; its evaluation is another line."""
    lines = [
        {"step": 10, "loss": 3.0},
        {"step": 10, "heldout/book/loss": 4.0},
        {"step": 20, "loss": 2.5},
        {"step": 10, "loss": 3.1},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert workdir.metrics(tmp_path) == [lines[3], lines[1], lines[2]]


def test_status_is_where_the_run_is(tmp_path):
    with pytest.raises(UserError, match=r"no status.json there; has a run started\?"):
        workdir.status(tmp_path)
    assert workdir.reached(tmp_path) == 0
    workdir.write_status(tmp_path, "training", 5, 40, 80, saved=4)
    assert workdir.reached(tmp_path) == 40
    found = workdir.status(tmp_path)
    assert found.pop("time").startswith("20")
    assert found == {"state": "training", "step": 5, "position": 40, "end": 80, "saved": 4}
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


def test_a_damaged_status_is_told(tmp_path):
    (tmp_path / "status.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"status.json: is damaged; a start of the run writes it"):
        workdir.status(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", '{"step": 1}', "[" * 100_000])
def test_so_is_one_that_says_no_place(tmp_path, text):
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(UserError, match=r"status.json: is damaged"):
        workdir.status(tmp_path)
    assert workdir.saved(tmp_path) is None


def test_a_line_of_the_history_that_is_no_start_is_told(tmp_path):
    (tmp_path / "history.jsonl").write_text('{"step": "0", "position": 0}\n')
    with pytest.raises(UserError, match=r'history.jsonl: {"step": "0", .* is no start of a run'):
        workdir.history(tmp_path)


def test_a_line_may_hold_what_other_places_take_for_its_end(tmp_path):
    said = {"a": "one\u2028two\x85three\x0cfour"}
    workdir.append_line(tmp_path / "events.jsonl", said)
    assert workdir.lines(tmp_path / "events.jsonl") == [said]


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"ledger.jsonl: cannot be read \(Is a directory"):
        workdir.lines(tmp_path / "ledger.jsonl")


def test_the_step_of_a_checkpoint():
    names = ("10", "0", "010", "\u0663", "\u00b2", "-1", "20.bad", "")
    assert [workdir.step_of(name) for name in names] == [10, 0, *[None] * 6]


def test_a_directory_is_made_and_probed(tmp_path):
    site.check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    with ThreadPoolExecutor(8) as pool:  # as hosts do, whose process numbers may be the same
        list(pool.map(site.check_writable, 200 * [tmp_path / "a"]))
    (tmp_path / "file").touch()
    with pytest.raises(
        EnvironmentProblem,
        match=r"/file: cannot be written \(it is a file, or a link to nothing\); choose",
    ):
        site.check_writable(tmp_path / "file")
