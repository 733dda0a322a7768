"""What `jaxlm status` says of a run, by its files: made here as a run writes them."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etils import epath

from jaxlm import checkpoint, config, ledger, site, status, status_lines, storage, workdir
from jaxlm.activity import Activity
from jaxlm.cli import main
from jaxlm.errors import UserError
from jaxlm.goodput import BETWEEN, LOST, USEFUL, WORDS
from jaxlm.ledger import FILE, Line
from jaxlm.mirror import Mirror
from jaxlm.schema import to_dict
from jaxlm.status import Speed
from jaxlm.workdir import Copies

ROOT = Path(__file__).parents[1]
NOW = 1_800_000_000.0
SYNTHETIC = ("data.source=synthetic", "data.seq_len=64", "train.batch_size=8")


def line(attempt: str, time: float, age: float, step: int | None = None, **more) -> Line:
    """Of a process that started up for 10 s, compiled for 20 s, and has done steps since."""
    spent = {"start": min(age, 10.0), "compile": min(max(age - 10, 0.0), 20.0)}
    spent["step"] = max(age - 30.0, 0.0)
    position = None if step is None else 8 * step
    return Line(attempt, time, spent, "step", step, position, **more)


def write(directory: Path, lines: list[Line], *overrides: str) -> None:
    """The ledger and the config of a run of 100 steps of 8 rows."""
    cfg = config.load(None, (*SYNTHETIC, "train.end=100 steps", *overrides))
    workdir.write_json(directory / "config.json", to_dict(cfg))
    for each in lines:
        workdir.append_line(directory / FILE, ledger._as_data(each))


@pytest.fixture
def killed(tmp_path) -> Path:
    """At step 40, 10 s a step, 70 s before now; then at step 30 of the second attempt."""
    first = [line("a", NOW - 1000, 0.0), line("a", NOW - 990, 10.0, 0, begins=True)]
    first += [line("a", NOW - 970, 30.0, 1), line("a", NOW - 580, 420.0, 40)]
    second = [line("b", NOW - 500, 0.0), line("b", NOW - 490, 10.0, 20, begins=True)]
    second += [line("b", NOW - 470, 30.0, 21), line("b", NOW - 70, 430.0, 61)]
    write(tmp_path, first + second)
    workdir.write_status(tmp_path, "training", 60, 480, 800, saved=20)
    for step in (10, 20):
        (tmp_path / "checkpoints" / "full" / str(step)).mkdir(parents=True)
        (tmp_path / "checkpoints" / "full" / str(step) / workdir.MARKER).touch()
    (tmp_path / "checkpoints" / "full" / "40").mkdir()
    return tmp_path


def test_dead(killed):
    found = status.of(killed, NOW)
    assert (found.state, found.pid, found.doing, found.heard) == ("dead", None, None, NOW - 70)
    assert (found.step, found.steps, found.position, found.end) == (61, 100, 488, 800)
    assert (found.tokens, found.tokens_end) == (488 * 64, 800 * 64)
    assert found.steps_per_s == pytest.approx(40 / 400)
    assert found.left_s == pytest.approx(39 * 10)
    assert found.full is not None and found.full[0::2] == (20, 2)
    assert (found.full_due, found.snapshot, found.snapshot_due) == (None, None, None)
    sums = found.goodput
    assert sums is not None and sums.wall_s == pytest.approx(930)
    assert sums.seconds[BETWEEN] == pytest.approx(80)
    assert sums.lost_steps == 20
    assert sums.seconds[LOST] == pytest.approx(390 * 20 / 39)
    assert sums.seconds[USEFUL] == pytest.approx(390 + 400 - 390 * 20 / 39)


def test_the_lock_tells_that_it_trains(killed):
    with site.lock(killed, print):
        found = status.of(killed, NOW)
        assert found.state == "training" and found.pid is not None and found.doing == "step"
        assert found.goodput is not None and found.goodput.wall_s == pytest.approx(1000)
        assert f"training: pid {os.getpid()}, at step" in "\n".join(status_lines.of(found, NOW))
    assert status.of(killed, NOW).state == "dead"


def test_before_the_first_line_of_a_new_run(tmp_path):
    with site.lock(tmp_path, print):
        found = status.of(tmp_path, NOW)
        text = "\n".join(status_lines.of(found, NOW))
    assert (found.state, found.step, found.goodput) == ("training", 0, None)
    assert "at its start" in text


@pytest.mark.parametrize(
    ("said", "end", "state"),
    [
        ("done", "done", "done"),
        ("stopped", "stopped", "stopped"),
        ("training", "KeyboardInterrupt: ", "dead"),
        ("training", None, "dead"),
        ("done", None, "done"),  # killed after it had said so
    ],
)
def test_the_end_of_the_last_attempt_is_the_state(tmp_path, said, end, state):
    write(tmp_path, [line("a", NOW, 10.0, 0, begins=True), line("a", NOW, 40.0, 100, end=end)])
    workdir.write_status(tmp_path, said, 100, 800, 800, saved=100)
    assert status.of(tmp_path, NOW).state == state


def test_what_was_said_by_an_attempt_before_does_not_count(tmp_path):
    lines = [line("a", NOW, 10.0, 0, begins=True), line("a", NOW, 40.0, 50, end="stopped")]
    write(tmp_path, [*lines, line("b", NOW, 10.0)])
    workdir.write_status(tmp_path, "stopped", 50, 400, 800, saved=50)
    assert status.of(tmp_path, NOW).state == "dead"


def test_a_run_without_a_ledger(tmp_path):
    """Of an earlier version."""
    workdir.write_status(tmp_path, "stopped", 5, 40, 80, saved=4)
    found = status.of(tmp_path, NOW)
    assert (found.state, found.step, found.position, found.end) == ("stopped", 5, 40, 80)
    assert (found.steps, found.tokens, found.goodput, found.left_s) == (None, None, None, None)
    assert "\n".join(status_lines.of(found, NOW)).startswith("stopped as asked; the same command")


def test_speed_is_the_median_of_the_last_reports(killed):
    report = {"step": 1, "loss": 3.0, "tokens_per_s": 0.0, "mfu": 0.0, "step_time_s": 9.0}
    report["data_wait_share"] = 0.0
    lines = [{**report, "tokens_per_s": float(i), "mfu": i / 1000} for i in range(5000)]
    lines.insert(4990, {"step": 1, "heldout/book/loss": 2.5, "heldout/book/bits_per_byte": 1.0})
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (killed / "metrics.jsonl").write_text(text + '{"step": 2, "lo')
    found = status.of(killed, NOW)
    assert found.speed is not None and found.speed.tokens_per_s == 4989.5
    assert found.speed.mfu == pytest.approx(4.9895)
    assert (found.loss, found.heldout) == (3.0, {"book": 2.5})
    (killed / "metrics.jsonl").write_text(json.dumps({**report, "mfu": None}) + "\n")
    assert "MFU not known" in "\n".join(status_lines.of(status.of(killed, NOW), NOW))


def due(directory: Path, *overrides: str) -> tuple[status.Due | None, status.Due | None]:
    cfg = config.load(None, (*SYNTHETIC, "train.end=100 steps", *overrides))
    workdir.write_json(directory / "config.json", to_dict(cfg))
    with site.lock(directory, print):
        found = status.of(directory, NOW)
    return found.full_due, found.snapshot_due


def test_when_the_next_save_comes(killed):
    """At step 61; the loop began 490 s ago, after the checkpoints."""
    for path in (killed / "checkpoints" / "full").glob("*/*"):
        path.touch()
        os.utime(path, (NOW - 700, NOW - 700))
    hour = 3600
    assert due(killed) == ((100, NOW - 490 + 6 * hour), (None, NOW - 490 + hour))
    some = ("checkpoint.every=24 steps", "checkpoint.every_minutes=None")
    assert due(killed, *some)[0] == (72, None)
    assert due(killed, *some, "checkpoint.at=('65 steps',)")[0] == (65, None)
    assert due(killed, "checkpoint.preemptions_per_day=4.0")[0] == (100, None)
    assert due(killed, "checkpoint.snapshot_every=320 rows")[1] == (80, NOW - 490 + hour)


@pytest.mark.parametrize(
    ("every", "full", "snapshot"), [("98 steps", 98, 98), ("100 steps", 100, None)]
)
def test_the_last_step_has_a_checkpoint_and_no_snapshot(killed, every, full, snapshot):
    none = ("checkpoint.every_minutes=None", "checkpoint.snapshot_every_minutes=None")
    more = (f"checkpoint.every={every}", f"checkpoint.snapshot_every={every}")
    assert due(killed, *none, *more) == ((full, None), (snapshot, None))


@pytest.mark.parametrize(
    ("row", "step"), [(496, 62), (504, 63), (512, 64), (516, 64), (528, 64), (529, 65)]
)
def test_a_save_comes_later_by_the_rows_that_are_skipped(killed, row, step):
    """At row 488: the third step from there does rows 504 to 507, then 524 to 527."""
    (killed / "skips.json").write_text("[[508, 524], [784, 800]]")
    assert due(killed, f"checkpoint.at=('{row} rows',)")[0] == (step, NOW - 490 + 6 * 3600)


def test_skipped_rows_are_no_tokens(killed):
    (killed / "skips.json").write_text('[[16, 24], [784, 792, "00000098-784-spike"]]')
    found = status.of(killed, NOW)
    assert (found.tokens, found.tokens_end, found.steps) == (480 * 64, 784 * 64, 99)
    text = "\n".join(status_lines.of(found, NOW))
    assert "skipped      16 rows in 2 windows; went back 1x" in text


def test_events_and_replicas_are_shown(killed):
    events = [{"time": "2026-12-01", "kind": "spike", "step": 7, "action": "warn", "loss": 9.5}]
    events += [{"time": "2026-12-02", "kind": "drift", "step": i, "size": 0.01} for i in range(7)]
    for event in events:
        workdir.append_line(killed / "events.jsonl", event)
    copies = {"comparable_bytes": 3_000, "all_bytes": 12_000, "copies": [2, 4]}
    seen = {"compare_every": "20 steps", "agreed_at_step": 60, "verified_at_step": None}
    workdir.write_json(killed / "replicas.json", copies | seen)
    found = status.of(killed, NOW)
    assert found.counts == {"spike": 1, "drift": 7}
    text = "\n".join(status_lines.of(found, NOW))
    assert "events: 8 (spike 1, drift 7)" in text and "2026-12-02" in text
    assert "copies       25% of the state is held more than once; the same at step 60" in text


def test_an_event_that_is_told_again_counts_once(killed):
    """The run was killed after it, and went on from a checkpoint before it."""
    spike = {"event": "00000007-48-spike", "kind": "spike", "step": 7, "action": "warn"}
    drift = {"kind": "drift", "step": 9, "size": 0.01}
    for event in (spike | {"time": "1"}, drift, spike | {"time": "2"}, drift):
        workdir.append_line(killed / "events.jsonl", event)
    found = status.of(killed, NOW)
    assert found.counts == {"spike": 1, "drift": 1}
    assert found.events == [spike | {"time": "2"}, drift]


def test_a_directory_that_is_called_by_no_step_is_no_checkpoint(killed):
    bad = killed / "checkpoints" / "full" / "100.bad"
    bad.mkdir()
    (bad / workdir.MARKER).touch()
    found = status.of(killed, NOW)
    assert found.full is not None and (found.full.step, found.full.kept) == (20, 2)


def test_all_of_it_as_json(killed, capsys):
    assert main(["status", f"--workdir={killed}", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["state"], data["step"], data["left_s"]) == ("dead", 61, pytest.approx(390))
    assert data["goodput"]["lost_steps"] == 20
    assert [a["last_step"] for a in data["goodput"]["attempts"]] == [40, 61]
    assert data["full"]["step"] == 20
    assert set(data["goodput"]["seconds"]) >= {"useful", "lost", "between", "compile"}


@pytest.fixture
def full(killed) -> Path:
    """Where all is known that can be, while it trains."""
    report = {"step": 1, "loss": 3.0, "heldout/book/loss": 2.5, **dict.fromkeys(Speed._fields, 1.0)}
    workdir.append_line(killed / "metrics.jsonl", report)
    workdir.append_line(killed / "events.jsonl", {"time": "2026-12-01", "kind": "spike"})
    workdir.write_json(killed / "replicas.json", {"copies": [2, 4]})
    (killed / "skips.json").write_text("[[16, 24]]")
    marker = killed / "checkpoints" / "snapshots" / "10" / workdir.MARKER
    marker.parent.mkdir(parents=True)
    marker.touch()
    return killed


def fields(data: dict, before: str = "") -> Iterator[str]:
    """Names of all fields; inside those of `ANY`, names are data."""
    for name, value in data.items():
        place = before + name
        if isinstance(value, list) and place not in ANY:
            place, value = f"{place}[]", value[0]
        if isinstance(value, dict) and place not in ANY:
            yield from fields(value, f"{place}.")
        else:
            yield place


ANY = {"heldout", "counts", "events", "skips", "replicas", "goodput.seconds"}


def test_every_field_of_the_json_is_documented_and_no_other(full):
    with site.lock(full, print):
        found = status.of(full)
    data = status.as_data(found)
    assert None not in [data[name] for name in data]  # or what is in it would not be seen
    lines = (ROOT / "docs" / "status.md").read_text().partition("## For programs")[2].splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall("`(.+?)`", row[0])]
    assert sorted(documented) == sorted(fields(data))
    (seconds,) = (row[2] for row in rows if "`goodput.seconds`" in row[0])
    assert sorted(re.findall("`(.+?)`", seconds)) == sorted(WORDS)
    (doing,) = (row[2] for row in rows if "`doing`" in row[0])
    assert re.findall("`(.+?)`", doing) == list(Activity)


@pytest.mark.parametrize("made", ["nothing", "a file", "other files", "a status of others"])
def test_what_is_no_work_directory(tmp_path, capsys, made):
    place = tmp_path / "there"
    if made == "a file":
        place.touch()
    elif made != "nothing":
        place.mkdir()
        (place / "lock").touch()
        (place / "events.jsonl").write_text("[]\n")
    if made == "a status of others":
        (place / "status.json").write_text('{"healthy": true}')
    assert main(["status", f"--workdir={place}"]) == UserError.exit_code
    assert f"{place}: is no work directory; has a run started?" in capsys.readouterr().err


def test_damaged_files_hide_nothing_else(killed):
    for name in ("status.json", "config.json", "metrics.jsonl", "events.jsonl"):
        (killed / name).write_bytes(b"\xff\xfe{")
    found = status.of(killed, NOW)
    assert (found.state, found.step, found.steps) == ("dead", 61, None)
    assert found.goodput is not None and found.goodput.lost_steps == 20


WRONG = [
    *(None, True, "x", [], {}, [[1]], {"a": "b"}, -1, 0, 1.5, 2**63, -(2**70), 1e300, 10**15),
    *(float("nan"), float("inf")),
]
"""What stands in place of some value of a file, as JSON has it."""


def damaged(value: Any, draw: random.Random) -> Any:
    """The same with another value at some place in it, or without that place."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.15:
        return draw.choice(WRONG)
    items = value.items() if isinstance(value, dict) else enumerate(value)
    at = draw.choice([name for name, _ in items])
    copy = value.copy()
    if draw.random() < 0.2:
        del copy[at]
    else:
        copy[at] = damaged(value[at], draw)
    return copy


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_files_say_there_is_an_answer(killed, seed, capsys):
    """A page, or a line that names the file; never a traceback."""
    report = {"step": 60, "position": 480, "loss": 2.0, **Speed(10.0, 100.0, 0.5, 0.01)._asdict()}
    event = {"time": "2026-01-01", "event": "e", "kind": "spike", "step": 50, "loss": 9.0}
    workdir.append_line(killed / workdir.METRICS, report)
    workdir.append_line(killed / workdir.METRICS, {"step": 60, "heldout/book/loss": 3.0})
    workdir.append_line(killed / workdir.EVENTS, event)
    workdir.write_json(killed / workdir.REPLICAS, {**Copies(1, 2, 50, 50)._asdict(), "more": 1})
    workdir.write_json(killed / "skips.json", [[0, 8], [80, 88, "0-e"]])
    draw = random.Random(seed)
    files = [path for path in killed.iterdir() if path.suffix in (".json", ".jsonl")]
    assert len(files) == 7
    for path in draw.sample(files, draw.randint(1, 3)):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for _ in range(draw.randint(1, 3)):
            i = draw.randrange(len(lines))
            lines[i] = json.dumps(damaged(json.loads(lines[i]), draw))
        path.write_text("\n".join(lines))
    for more in ((), ("--json",)):
        code = main(["status", f"--workdir={killed}", *more])
        out, err = capsys.readouterr()
        assert (code == 0 and out) or (code == 2 and re.match("jaxlm status: .*json", err))


@pytest.mark.parametrize("name", ["status.json", "ledger.jsonl", "config.json", "skips.json"])
@pytest.mark.parametrize("what", ["deep", "long number", "directory"])
def test_nor_is_there_a_traceback_for(killed, name, what, capsys):
    path = killed / name
    path.unlink(missing_ok=True)
    if what == "directory":
        path.mkdir()
    else:
        path.write_text("[" * 100_000 if what == "deep" else '{"step": ' + "9" * 5000 + "}")
    code = main(["status", f"--workdir={killed}"])
    assert code in (0, 2, 78)
    assert "\n" not in capsys.readouterr().err.strip()


def test_a_directory_that_somebody_set_aside_is_no_checkpoint(killed):
    full = killed / "checkpoints" / "full"
    (full / "20").rename(full / "20.bad")
    found = status.of(killed, NOW)
    assert found.full is not None and found.full[0::2] == (10, 1)
    assert checkpoint.newest(epath.Path(killed)) == epath.Path(full / "10")


def test_nor_is_one_in_a_store(store):
    url = store.url("set-aside")
    for name in ("10", "20.bad"):
        storage.write(f"{url}/checkpoints/full/{name}/{workdir.MARKER}", b"")
    found = status._saved(Mirror(url), "full")
    assert found is not None and found[0::2] == (10, 1)


def test_nothing_is_written(killed):
    def seen() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in [killed, *killed.rglob("*")]}

    before = seen()
    killed.chmod(0o555)
    try:
        assert main(["status", f"--workdir={killed}"]) == 0
    finally:
        killed.chmod(0o755)
    assert seen() == before


def test_jax_is_not_imported(killed):
    program = (
        "import sys; from jaxlm.cli import main\n"
        f"assert main(['status', '--workdir={killed}']) == 0\n"
        "sys.exit(bool({'jax', 'orbax', 'flax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_of_a_long_ledger_enough_is_read(tmp_path, monkeypatch):
    """Beginnings and ends all, and what lies between often enough."""
    lines = [line("a", NOW, 30.0, 0, begins=True)]
    lines += [line("a", NOW + i, 30.0 + i, i) for i in range(1, 3001)]
    lines += [line("a", NOW + 3000, 3030.0, 2500, begins=True)]
    lines += [line("a", NOW + 3000 + i, 3030.0 + i, 2500 + i) for i in range(1, 1001)]
    lines += [line("b", NOW + 4100, 30.0, 3400, begins=True)]
    lines += [line("b", NOW + 4100 + i, 30.0 + i, 3400 + i) for i in range(1, 2001)]
    write(tmp_path, lines)
    monkeypatch.setattr(ledger, "READ_LINES", 500)
    found = ledger.read(tmp_path)
    assert 500 < len(found) < 1200
    assert [x for x in found if x.begins] == [x for x in lines if x.begins]
    assert found[-500:] == lines[-500:]
    sums = status.of(tmp_path, NOW + 1e6).goodput
    assert sums is not None
    assert (sums.lost_steps, sums.wall_s) == (600, pytest.approx(30 + 6100))
    assert sums.seconds[LOST] == pytest.approx(600) and sums.seconds[USEFUL] == pytest.approx(5400)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (999_994, "999,994"),
        (999_995, "1.00M"),
        (12_345_678, "12.35M"),
        (999_990_000, "999.99M"),
        (999_996_000, "1.00B"),
        (15 * 10**12, "15.00T"),
    ],
)
def test_numbers_of_tokens(tokens, text):
    assert status_lines._count(tokens) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (60, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7260, "2 h 1 min"),
        (86399.9, "1 d 0 h"),
        (200000, "2 d 7 h"),
    ],
)
def test_durations(seconds, text):
    assert status_lines.duration(seconds) == text


def test_moments_are_local():
    assert status_lines.moment(NOW) == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW))
