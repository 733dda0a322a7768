"""A start finds what another has compiled, and ends in the same bits; its allocator is set."""

import re
import sys
from pathlib import Path

import pytest

from bench import runs
from jaxlm import allocator, compiled

pytestmark = pytest.mark.system

SHORT = ("train.end=30 steps", "checkpoint.every=10 steps", "log.tensorboard=False")
FOUND = re.compile("Persistent compilation cache hit for '(.*?)'")
ASKED = re.compile("Finished XLA compilation of (.*?) in")
"""With JAX_LOG_COMPILES: what was found, and all that was found or compiled."""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Where programs are kept."""
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "1")
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / compiled.NAME


def start(command: list[str], log: Path, devices: int = 1) -> tuple[int, int]:
    """How many programs a run found, and how many it needed."""
    code, output = runs.finish(command, log, devices)
    assert code == 0, output
    assert "cannot be kept" not in output
    return len(FOUND.findall(output)), len(ASKED.findall(output))


def test_a_start_finds_what_another_has_compiled(tmp_path, config, home):
    one, other = tmp_path / "one", tmp_path / "other"
    found, needed = start(runs.train(config, one, *SHORT), tmp_path / "1.log")
    assert found == 0 and needed >= 5 and len(list(home.iterdir())) == needed
    listed = sorted(path.name for path in one.iterdir())
    assert start(runs.train(config, other, *SHORT), tmp_path / "2.log") == (needed, needed)
    assert sorted(path.name for path in other.iterdir()) == listed
    runs.assert_same(runs.state(one, 30), runs.state(other, 30))

    runs.go_back(one, 20)
    found, needed = start(runs.train(config, one, *SHORT), tmp_path / "3.log")
    assert "resuming at step 20" in (tmp_path / "3.log").read_text()
    assert found == needed >= 2  # step and held-out loss
    runs.assert_same(runs.state(one, 30), runs.state(other, 30))


def test_damaged_programs_are_made_again(tmp_path, config, home):
    one, other = tmp_path / "one", tmp_path / "other"
    _, needed = start(runs.train(config, one, *SHORT), tmp_path / "1.log")
    for number, path in enumerate(sorted(home.iterdir())):
        data = bytearray(path.read_bytes())
        data[-number - 1] ^= 1
        path.write_bytes(data if number % 2 else data[:-7])
    assert start(runs.train(config, other, *SHORT), tmp_path / "2.log") == (0, needed)
    runs.assert_same(runs.state(one, 30), runs.state(other, 30))


def test_of_two_processes_the_first_finds_them(tmp_path, config, home):
    """JAX keeps those of process 0 alone; the others compile, and end in the same bits."""
    one, other = tmp_path / "one", tmp_path / "other"
    found, needed = start(runs.launch(config, one, *SHORT), tmp_path / "1.log")
    assert needed >= 10  # of both
    found, needed = start(runs.launch(config, other, *SHORT), tmp_path / "2.log")
    assert 2 * found == needed
    runs.assert_same(runs.state(one, 30), runs.state(other, 30))


def test_what_cannot_be_kept_ends_no_run(tmp_path, config, home):
    home.parent.mkdir()
    home.touch()
    code, output = runs.finish(runs.train(config, tmp_path / "run", *SHORT), tmp_path / "log")
    assert code == 0, output
    assert output.count(f"{home}: compiled programs cannot be kept") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
@pytest.mark.parametrize("plain", [False, True])
def test_a_run_says_how_it_takes_memory(tmp_path, config, plain):
    flags = [allocator.FLAG] if plain else []
    log = tmp_path / "log"
    with runs.running(runs.train(config, tmp_path / "run", *SHORT, *flags), log) as process:
        runs.wait_until(runs.says(log, "compiling"), process)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert process.wait(runs.PATIENCE_S) == 0, log.read_text()
    assert (b"glibc.malloc" in environment) is not plain
    assert (allocator.LINE in log.read_text()) is not plain
