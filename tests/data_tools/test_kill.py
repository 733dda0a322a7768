"""A build killed with SIGKILL at any moment goes on, and ends as if nothing had been."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jaxlm.data import manifest
from jaxlm.schema import to_dict
from tests.data_tools import small

pytestmark = pytest.mark.system

FILES = 12


def start(workdir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "data_tools", "build"]
    command += [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def committed(workdir: Path, stage: str) -> int:
    found = workdir.glob(f"{stage}/*/commit.json")
    return sum(not path.parent.name.endswith(".tmp") for path in found)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.001)


def prepare(workdir: Path) -> None:
    small.write_raw(workdir, files=FILES, texts=1)
    for n in range(FILES):  # long enough to be caught in the middle of cleaning
        texts = [small.chinese(s, 4000) + small.english(s, 2000) for s in range(9 * n, 9 * n + 9)]
        small.write_jsonl(workdir / f"raw/zh/{n}.jsonl", texts)
    pack = replace(small.recipe().pack, shard_bytes=400 * 64)
    recipe = replace(small.recipe(pack=pack), workers=2)
    (workdir / "recipe.json").write_text(json.dumps(to_dict(recipe)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("whole")
    prepare(workdir)
    build = start(workdir)
    output, _ = build.communicate()
    assert build.returncode == 0, output
    return workdir


def kill(build: subprocess.Popen[str]) -> None:
    workers = children(build.pid) if build.poll() is None else []
    build.send_signal(signal.SIGKILL)
    build.communicate()
    # a worker that outlived the build could commit under the next one
    wait_for(lambda: not any(Path(f"/proc/{w}").exists() for w in workers))


def finish(workdir: Path) -> str:
    build = start(workdir)
    output, _ = build.communicate()
    assert build.returncode == 0, output
    return output


def same(workdir: Path, whole: Path) -> None:
    one, two = (manifest.load(w / "manifest.json") for w in (workdir, whole))
    assert one.fingerprint() == two.fingerprint()
    assert one.shards == two.shards and one.counts == two.counts
    assert not list(workdir.glob("**/*.tmp"))


@pytest.mark.parametrize("stage", ["stages/clean", "shards"])
def test_killed_in_the_middle_of_a_stage(tmp_path, whole, stage):
    prepare(tmp_path)
    everything = committed(whole, stage)
    build = start(tmp_path)
    wait_for(lambda: committed(tmp_path, stage) >= 2)
    kill(build)
    before = committed(tmp_path, stage)
    assert 2 <= before < everything
    assert not (tmp_path / "manifest.json").exists()
    output = finish(tmp_path)
    name = stage.replace("stages/", "").replace("shards", "pack")
    assert re.search(rf"^{name}: {everything - before} run, {before} reused", output, re.M), output
    same(tmp_path, whole)


def test_killed_again_and_again(tmp_path, whole):
    prepare(tmp_path)
    for n in range(12):
        build = start(tmp_path)
        time.sleep(0.3 + 0.15 * n)
        kill(build)
    finish(tmp_path)
    same(tmp_path, whole)


def test_interrupted_by_the_keyboard(tmp_path, whole):
    prepare(tmp_path)
    build = start(tmp_path)
    wait_for(lambda: committed(tmp_path, "stages/clean") >= 1)
    workers = children(build.pid)
    for pid in (build.pid, *workers):  # a terminal sends it to all of them
        os.kill(pid, signal.SIGINT)
    output, _ = build.communicate(timeout=120)
    assert build.returncode == 130
    assert "interrupted; the same command goes on from here" in output
    assert "Traceback" not in output
    finish(tmp_path)
    same(tmp_path, whole)


def test_told_to_end(tmp_path, whole):
    """By who does not mean the workers, as Slurm or a launcher."""
    prepare(tmp_path)
    build = start(tmp_path)
    wait_for(lambda: committed(tmp_path, "stages/clean") >= 1)
    workers = children(build.pid)
    build.terminate()
    output, _ = build.communicate(timeout=120)
    assert build.returncode == 75
    assert "told to end; the same command goes on from here" in output
    assert "Traceback" not in output
    wait_for(lambda: not any(Path(f"/proc/{w}").exists() for w in workers))
    finish(tmp_path)
    same(tmp_path, whole)
