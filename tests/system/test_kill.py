"""A run killed with SIGKILL at any moment goes on, and ends in the same bits."""

import shutil
import time
from pathlib import Path

import pytest

from bench import runs
from jaxlm import ledger, status
from jaxlm import workdir as workdirs


def resume(config: Path, workdir: Path) -> str:
    code, output = runs.finish(runs.train(config, workdir), workdir / "resumed.log")
    assert code == 0, output
    return output


def assert_like_whole(workdir: Path, whole: Path) -> None:
    runs.assert_same(runs.state(workdir), runs.state(whole))
    assert runs.losses(workdir) == runs.losses(whole)
    assert workdirs.status(workdir)["state"] == "done"


def handed_over(workdir: Path) -> int:
    """The last step in the ledger."""
    return max((line.step or 0 for line in ledger.read(workdir)), default=0)


def test_killed_in_a_step(tmp_path, config, whole):
    log, before = tmp_path / "first.log", time.time()
    with runs.running(runs.train(config, tmp_path, runs.SLOWLY), log) as process:
        runs.kill_when(
            process,
            lambda: (
                len(runs.committed(tmp_path)) >= 2
                and handed_over(tmp_path) > runs.committed(tmp_path)[-1]
            ),
        )
    last = runs.committed(tmp_path)[-1]
    assert last < runs.STEPS
    found = status.of(tmp_path)
    assert found.state == "dead"
    assert found.full is not None and found.full.step == last
    assert found.position == 4 * found.step
    output = resume(config, tmp_path)
    assert f"resuming at step {last}, row {4 * last:,}" in output
    assert [s.step for s in workdirs.history(tmp_path)] == [0, last]
    assert_like_whole(tmp_path, whole)
    spent = runs.time_spent(tmp_path)
    assert spent.lost_steps == max(0, found.step - last)  # it may have saved since its last line
    assert (spent.seconds["lost"] > 0) == (spent.lost_steps > 0) and spent.seconds["between"] > 0
    assert spent.wall_s < time.time() - before + 0.1
    assert [attempt.end for attempt in spent.attempts] == [None, "done"]
    assert status.of(tmp_path).state == "done"


@pytest.mark.system
def test_killed_while_compiling(tmp_path, config, whole):
    log = tmp_path / "first.log"
    with runs.running(runs.train(config, tmp_path), log) as process:
        runs.kill_when(process, runs.says(log, "compiling"))
    assert runs.committed(tmp_path) == []
    resume(config, tmp_path)
    assert [s.step for s in workdirs.history(tmp_path)] == [0, 0]
    assert_like_whole(tmp_path, whole)


@pytest.mark.system
def test_killed_in_a_save(tmp_path, config, whole):
    for attempt in range(10):
        log = tmp_path / f"{attempt}.log"
        command = runs.train(config, tmp_path, "checkpoint.every=3 steps")
        with runs.running(command, log) as process:
            runs.kill_when(
                process, lambda: bool(runs.committed(tmp_path) and runs.unfinished(tmp_path))
            )
        torn = runs.unfinished(tmp_path)
        if torn:  # else it was committed between the look and the kill
            break
    else:
        pytest.fail("no kill came in the middle of a save")
    last = runs.committed(tmp_path)[-1]
    output = resume(config, tmp_path)
    assert f"{torn[0]}: a save that was not finished; deleted" in output
    assert f"resuming at step {last}" in output
    assert not (tmp_path / "abandoned").exists()
    runs.assert_same(runs.state(tmp_path), runs.state(whole))


@pytest.mark.system
def test_started_again_when_complete(tmp_path, config, whole):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    before = (workdir / "metrics.jsonl").read_bytes()
    start = time.monotonic()
    output = resume(config, workdir)
    assert time.monotonic() - start < 30
    assert f"{workdir}: this run is complete at step {runs.STEPS}; nothing to do" in output
    assert (workdir / "metrics.jsonl").read_bytes() == before
    assert workdirs.status(workdir)["state"] == "done"


@pytest.mark.system
def test_a_complete_run_is_extended(tmp_path, config, whole):
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    command = runs.train(config, workdir, f"train.end={runs.STEPS + 10} steps")
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 0
    changed = ["train.end", f"{runs.STEPS} steps", f"{runs.STEPS + 10} steps"]
    assert f"config.train.end has changed from '{changed[1]}' to '{changed[2]}'" in output
    assert workdirs.history(workdir)[-1].changed == [changed]
    assert workdirs.history(workdir)[-1].step == runs.STEPS
    assert runs.committed(workdir)[-1] == runs.STEPS + 10
    assert workdirs.status(workdir)["position"] == 4 * (runs.STEPS + 10)
