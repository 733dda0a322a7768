"""Stages: committed whole or not at all, and run again exactly when something they read changed."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from data_tools.document import DataError
from data_tools.engines import InProcess
from data_tools.engines.task import Task
from data_tools.stage import (
    COMMIT,
    Input,
    Partition,
    Report,
    Stage,
    StageResult,
    committed,
    is_done,
    run_stage,
)


def upper(partition: Partition[str], out: Path) -> Report:
    """Writes each input in capitals, with the config at the end; fails on a file `fail`."""
    for file in partition.inputs["files"]:
        text = file.path.read_text()
        (out / file.name).write_text(text.upper() + partition.config)
        if text == "fail":
            raise DataError("told to fail")
    return {"files": len(partition.inputs["files"])}


STAGE = Stage("upper", "1", upper)


def partition(root: Path, name: str, texts: dict[str, str], config: str = "!") -> Partition[str]:
    root.mkdir(exist_ok=True)
    inputs = []
    for file, text in texts.items():
        (root / file).write_text(text)
        inputs.append(Input(root / file, file, identity=text))
    return Partition(name, config, {"files": tuple(inputs)})


def run(tmp_path: Path, *partitions: Partition[str], stage: Stage = STAGE) -> StageResult:
    return run_stage(stage, partitions, tmp_path / "out", InProcess())


def test_commit_and_reuse(tmp_path):
    parts = [partition(tmp_path / "in", n, {n: f"text {n}"}) for n in "ab"]
    first = run(tmp_path, *parts)
    assert first.ran == ("a", "b")
    assert [c.partition for c in first.commits] == ["a", "b"]
    (output,) = first.commits[0].input("a")
    assert output.path.read_text() == "TEXT A!" and output.name == "a"
    assert first.commits[0].input("absent") == ()
    again = run(tmp_path, *parts)
    assert again.ran == () and again.commits == first.commits


@pytest.mark.parametrize(
    "change",
    [
        lambda p: dataclasses.replace(p, config="?"),
        lambda p: dataclasses.replace(
            p, inputs={"files": (dataclasses.replace(p.inputs["files"][0], identity="new"),)}
        ),
        lambda p: dataclasses.replace(p, inputs={**p.inputs, "more": p.inputs["files"]}),
    ],
)
def test_a_change_of_what_it_reads_runs_that_partition_alone(tmp_path, change):
    a, b = (partition(tmp_path / "in", n, {n: n}) for n in "ab")
    run(tmp_path, a, b)
    assert run(tmp_path, change(a), b).ran == ("a",)


def test_a_new_version_runs_all(tmp_path):
    a = partition(tmp_path / "in", "a", {"a": "a"})
    run(tmp_path, a)
    assert run(tmp_path, a, stage=Stage("upper", "2", upper)).ran == ("a",)


def test_a_moved_directory_runs_nothing(tmp_path):
    a = partition(tmp_path / "in", "a", {"a": "a"})
    run(tmp_path, a)
    (tmp_path / "in").rename(tmp_path / "moved")
    file = dataclasses.replace(a.inputs["files"][0], path=tmp_path / "moved/a")
    assert run(tmp_path, dataclasses.replace(a, inputs={"files": (file,)})).ran == ()


def test_the_same_bytes_have_the_same_identity(tmp_path):
    a = partition(tmp_path / "in", "a", {"a": "text"})
    (before,) = run(tmp_path, a).commits[0].input("a")
    b = partition(tmp_path / "in", "a", {"a": "tExt"})
    result = run(tmp_path, b)
    assert result.ran == ("a",) and result.commits[0].input("a") == (before,)


def test_a_failure_leaves_the_old_commit_and_the_finished_ones(tmp_path):
    a, b = (partition(tmp_path / "in", n, {n: n}) for n in "ab")
    run(tmp_path, a, b)
    broken = partition(tmp_path / "in", "b", {"b": "fail"})
    changed = partition(tmp_path / "in", "a", {"a": "new"})
    with pytest.raises(DataError, match="upper: partition b: told to fail"):
        run(tmp_path, changed, broken)
    assert (tmp_path / "out/b/b").read_text() == "B!"
    assert run(tmp_path, changed, b).ran == ()


def test_the_others_are_committed_when_one_fails(tmp_path):
    texts = {"a": "a", "b": "fail", "c": "c"}
    parts = [partition(tmp_path / "in", n, {n: t}) for n, t in texts.items()]
    with pytest.raises(DataError, match="upper: partition b: told to fail"):
        run(tmp_path, *parts)
    assert run(tmp_path, parts[0], parts[2]).ran == ()


def break_once(partition: Partition[str], out: Path) -> Report:
    """Leaves something half done the first time."""
    mark = partition.inputs["files"][0].path.with_suffix(".tried")
    if not mark.exists():
        mark.touch()
        (out / "half").touch()
        raise OSError("a passing fault")
    return upper(partition, out)


def test_a_failed_attempt_leaves_nothing_behind(tmp_path):
    a = partition(tmp_path / "in", "a", {"a": "a"})
    run(tmp_path, a, stage=Stage("upper", "1", break_once))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a"]
    assert sorted(p.name for p in (tmp_path / "out/a").iterdir()) == ["a", COMMIT]


class Sizes(InProcess):
    """Notes what each task reads."""

    def run[T: Task](self, function: Callable[[T], None], tasks: Sequence[T], label: str) -> None:
        self.bytes = {task.name: task.bytes for task in tasks}
        super().run(function, tasks, label)


def test_a_file_that_two_partitions_read_counts_once(tmp_path):
    shared, own = "x" * 100, "y" * 10
    parts = [partition(tmp_path / "in", n, {"shared": shared, n: own}) for n in "ab"]
    engine = Sizes()
    run_stage(STAGE, parts, tmp_path / "out", engine)
    assert engine.bytes == {"a": 60, "b": 60}
    (tmp_path / "out/a/a").unlink()
    run_stage(STAGE, parts, tmp_path / "out", engine)
    assert engine.bytes == {"a": 60}


def test_what_belongs_to_no_partition_goes(tmp_path):
    a, b = (partition(tmp_path / "in", n, {n: n}) for n in "ab")
    run(tmp_path, a, b)
    (tmp_path / "out/a.999.tmp").mkdir()
    (tmp_path / "out/.DS_Store").write_bytes(b"a file")
    result = run(tmp_path, b)
    assert result.ran == () and [c.partition for c in result.commits] == ["b"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["b"]


def test_done_means_that_a_run_would_change_nothing(tmp_path):
    a, b = (partition(tmp_path / "in", n, {n: n}) for n in "ab")
    assert not is_done(STAGE, [a], tmp_path / "out")
    run(tmp_path, a, b)
    assert is_done(STAGE, [a, b], tmp_path / "out")
    assert not is_done(STAGE, [a], tmp_path / "out")
    assert not is_done(STAGE, [dataclasses.replace(a, config="?"), b], tmp_path / "out")


@pytest.mark.parametrize(
    "damage", ["truncate", "remove", "commit", "binary", "list", "uncommitted"]
)
def test_a_commit_that_is_not_whole_is_no_commit(tmp_path, damage):
    a = partition(tmp_path / "in", "a", {"a": "text"})
    run(tmp_path, a)
    match damage:
        case "truncate":
            (tmp_path / "out/a/a").write_text("TEX")
        case "remove":
            (tmp_path / "out/a/a").unlink()
        case "commit":
            (tmp_path / "out/a" / COMMIT).write_text('{"fingerprint": "')
        case "binary":
            (tmp_path / "out/a" / COMMIT).write_bytes(b"\xff\xfe")
        case "list":
            (tmp_path / "out/a" / COMMIT).write_text("[]")
        case "uncommitted":
            (tmp_path / "out/a" / COMMIT).unlink()
    assert run(tmp_path, a).ran == ("a",)
    assert (tmp_path / "out/a/a").read_text() == "TEXT!"


def test_old_outputs_do_not_stay_beside_new_ones(tmp_path):
    run(tmp_path, partition(tmp_path / "in", "p", {"a": "a", "b": "b"}))
    result = run(tmp_path, partition(tmp_path / "in", "p", {"a": "a"}))
    assert sorted(p.name for p in (tmp_path / "out/p").iterdir()) == ["a", COMMIT]
    commit = json.loads((tmp_path / "out/p" / COMMIT).read_text())
    assert list(commit["outputs"]) == list(result.commits[0].outputs) == ["a"]


@pytest.mark.parametrize("what", ["file", "link", "commit is a list", "commit is a directory"])
def test_what_stands_where_a_partition_belongs_is_replaced(tmp_path, what):
    a = partition(tmp_path / "in", "a", {"a": "text"})
    run(tmp_path, a)
    place = tmp_path / "out/a"
    if what == "file":
        shutil.rmtree(place)
        place.touch()
    elif what == "link":
        place.rename(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / COMMIT).unlink()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        (place / COMMIT).unlink()
        if what == "commit is a list":
            (place / COMMIT).write_text('{"fingerprint": "", "outputs": []}')
        else:
            (place / COMMIT).mkdir()
    assert committed(place) is None
    assert run(tmp_path, a).ran == ("a",)
    assert not place.is_symlink() and (place / "a").read_text() == "TEXT!"
