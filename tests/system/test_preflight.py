"""Two real processes, of which one is on a machine that does not fit: both say so, and which."""

import json
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import runs

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
ONE, OTHER = (f"process {i} ({socket.gethostname()})" for i in range(2))


def inside(directory: Path, python_path: Path, command: Sequence[str]) -> list[str]:
    """The command, started in a directory, with the code that lies elsewhere."""
    rest = os.environ.get("PYTHONPATH", "")
    return ["env", "-C", str(directory), f"PYTHONPATH={python_path}:{rest}", *command]


def refusal(tmp_path: Path, commands: Sequence[Sequence[str]], devices: Sequence[int]) -> str:
    """What both say that end with exit code 78 before they have compiled or kept anything."""
    place, logs = runs.apart(), [tmp_path / "0.log", tmp_path / "1.log"]
    zero, one = ([*command, *place, f"--process={i}"] for i, command in enumerate(commands))
    with (
        runs.running(zero, logs[0], devices[0]) as first,
        runs.running(one, logs[1], devices[1]) as second,
    ):
        codes = (first.wait(runs.PATIENCE_S), second.wait(runs.PATIENCE_S))
    outputs = [log.read_text() for log in logs]
    assert codes == (78, 78), outputs
    assert "compiling" not in outputs[0] and "Traceback" not in "".join(outputs)
    first, second = (
        [line for line in output.splitlines() if line.startswith("jaxlm train: ")]
        for output in outputs
    )
    assert first == second and len(first) == 1
    left = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert left <= {"lock"}
    return first[0].removeprefix("jaxlm train: ")


def test_another_config(tmp_path, config):
    command = runs.train(config, tmp_path / "run")
    message = refusal(tmp_path, [command, [*command, "--config.optim.lr=1e-2"]], (1, 1))
    assert message.startswith(
        f"processes differ in config.optim.lr: 0.0003 on {ONE}, 0.01 on {OTHER}. Use one version"
    )
    assert not (tmp_path / "run" / "lock").exists()


def test_other_code(tmp_path, config):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "jaxlm", other / "jaxlm", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "jaxlm" / "clock.py").open("a") as file:
        file.write("# as of yesterday\n")
    command = runs.train(config, tmp_path / "run")
    message = refusal(tmp_path, [command, inside(other, other, command)], (1, 1))
    assert message.startswith("processes differ in the code of jaxlm: ")
    assert f" on {ONE}, " in message and f" on {OTHER}. Use one version of the code" in message
    assert ";" not in message  # in nothing else


def test_a_work_directory_that_is_not_shared(tmp_path, config):
    """Each host has its own /runs/x."""
    for name in ("run", "own"):
        (tmp_path / name).mkdir()
    commands = [runs.train(config, tmp_path / name) for name in ("run", "own")]
    message = refusal(tmp_path, commands, (1, 1))
    assert message.startswith(
        f"{OTHER} alone, of 2 processes: --workdir={tmp_path / 'own'}: is not the directory of "
        "process 0, whose files have not come to be seen in it for 15 s. A run has one, that all "
    )
    assert not list((tmp_path / "own").iterdir()) and not list((tmp_path / "run").iterdir())


def test_a_work_directory_that_cannot_be_written(tmp_path, config):
    (tmp_path / "run").touch()
    message = refusal(tmp_path, 2 * [runs.train(config, tmp_path / "run")], (1, 1))
    assert message.startswith(f"--workdir={tmp_path / 'run'}: cannot be written (it is a file")


def test_a_corpus_that_one_host_has_not(tmp_path, config):
    """Its path is the same on both, and only one has mounted it."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    runs.corpus(here / "data")
    elsewhere.mkdir()
    command = runs.train(config, tmp_path / "run", "data.manifest=data/manifest.json")
    commands = [inside(directory, ROOT, command) for directory in (here, elsewhere)]
    message = refusal(tmp_path, commands, (1, 1))
    missing = elsewhere / "data" / "manifest.json"
    assert message.startswith(f"{OTHER} alone, of 2 processes: {missing}: no such manifest")


def test_another_corpus_at_the_same_path(tmp_path, config):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    runs.corpus(here / "data")
    shutil.copytree(here, elsewhere)
    path = elsewhere / "data" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["sha256"] = 64 * "0"  # as of a shard that was built anew
    path.write_text(json.dumps(manifest))
    command = runs.train(config, tmp_path / "run", "data.manifest=data/manifest.json")
    commands = [inside(directory, ROOT, command) for directory in (here, elsewhere)]
    message = refusal(tmp_path, commands, (1, 1))
    assert message.startswith("processes differ in the data, manifest: ")


def test_fewer_devices(tmp_path, config):
    message = refusal(tmp_path, 2 * [runs.train(config, tmp_path / "run")], (2, 1))
    assert message.startswith(
        f"processes differ in devices: 2 x cpu on {ONE}, 1 x cpu on {OTHER}. A run needs as many"
    )
