"""The command line: exit codes, messages without tracebacks, nothing heavy before parsing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.__main__ import STEPS, main
from data_tools.build import STEPS as BUILD_STEPS
from data_tools.heldout import HeldoutConfig
from jaxlm.schema import to_dict
from tests.data_tools import small


def refused(capsys, *arguments: object) -> str:
    """The message of a command that ends with code 2."""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as e:
        code = e.code
    assert code == 2
    return capsys.readouterr().err


@pytest.fixture
def workdir(tmp_path) -> Path:
    small.write_raw(tmp_path, files=1, texts=12)
    (tmp_path / "recipe.json").write_text(json.dumps(to_dict(small.recipe())))
    return tmp_path


def test_build_then_verify_then_damage(workdir, capsys):
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    assert main(["build", *options, "--config.tokenizer.vocab_size=380"]) == 0
    made = json.loads((workdir / "manifest.json").read_text())
    assert made["vocab_size"] == 380 and made["recipe"]["tokenizer"]["vocab_size"] == 380
    assert main(["verify", f"--workdir={workdir}"]) == 0
    assert f"{len(made['shards'])} shards agree" in capsys.readouterr().out
    shard = workdir / made["shards"][0]["path"]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    message = refused(capsys, "verify", f"--workdir={workdir}")
    assert f"1 of {len(made['shards'])} shards are damaged; remove" in message
    assert message.splitlines()[-1] == f"{shard}: differs from its sha256"
    # as it is told to
    shutil.rmtree(shard.parent)
    assert main(["build", *options, "--config.tokenizer.vocab_size=380"]) == 0
    assert "pack: 1 run" in capsys.readouterr().out
    assert main(["verify", f"--workdir={workdir}"]) == 0


def test_a_step_stops_after_itself(workdir):
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    assert main(["clean", *options]) == 0
    assert (workdir / "stages/clean").exists() and not (workdir / "stages/privacy").exists()


def test_wrong_usage(workdir, capsys):
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    assert "invalid choice: 'bild'" in refused(capsys, "bild", *options)
    assert "--workdir" in refused(capsys, "build", options[0])
    message = refused(capsys, "build", *options, "--worker=2")
    assert "unknown argument '--worker=2'; overrides are written --config.a.b=VALUE" in message
    message = refused(capsys, "build", *options, "--config.pack.chunks=2")
    assert "config.pack.chunks: unknown field" in message
    message = refused(capsys, "build", *options, "--config.workers=many")
    assert "config.workers='many': must be int" in message
    message = refused(capsys, "build", *options, "--config.worker_memory_bytes=-1")
    assert "config.worker_memory_bytes=-1: must be at least 0" in message
    message = refused(capsys, "build", *options, "--ray-address=10.0.0.1:6379")
    assert "--ray-address=10.0.0.1:6379 needs --engine=ray" in message
    message = refused(capsys, "build", *options, "--ray-nodes=2")
    assert "--ray-nodes=2 needs --engine=ray" in message
    message = refused(capsys, "tokenizer", "evaluate", options[1], "--sample-bytes=0")
    assert "--sample-bytes=0 must be at least 1" in message
    message = refused(capsys, "build", "--config=none.py", options[1])
    assert message == "--config=none.py: no such file\n"
    assert "no such manifest; build the corpus first" in refused(capsys, "verify", options[1])


def test_bad_data_is_a_message_not_a_traceback(workdir, capsys):
    (workdir / "raw/zh/0.jsonl").unlink()
    message = refused(
        capsys, "build", f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"
    )
    assert message.startswith("source zh: no file matches '*.jsonl' below ")


def test_a_work_directory_that_cannot_be_written(workdir, capsys):
    (workdir / "file").touch()
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir / 'file/x'}"]
    assert main(["build", *options]) == 78
    assert "cannot be written" in capsys.readouterr().err


def test_a_disk_that_is_full_when_the_report_is_written(workdir, capsys):
    (workdir / "report.html.tmp").symlink_to("/dev/full")
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    assert main(["build", *options]) == 78
    told = "[Errno 28] No space left on device; make room, then start again\n"
    assert capsys.readouterr().err == told


# ---- where the output goes -----------------------------------------------------------------------


def command(
    *arguments: object, stdout: int, environment: Mapping[str, str] = os.environ
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process."""
    line = [sys.executable, "-m", "data_tools", *map(str, arguments)]
    done = subprocess.run(
        line, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout or "", done.stderr


def closed_pipe() -> int:
    """As of `| head` when it has seen enough."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_reader_that_goes_away_ends_it_quietly(workdir, eventful_build):
    pipe = closed_pipe()
    options = [f"--config={workdir / 'recipe.json'}", f"--workdir={workdir}"]
    assert command("build", *options, "--config.workers=2", stdout=pipe) == (141, "", "")
    listing = ("explain", "--path=salted.jsonl", f"--workdir={eventful_build}")
    assert command(*listing, stdout=pipe) == (141, "", "")
    os.close(pipe)
    assert not (workdir / "manifest.json").exists()


def test_output_that_cannot_be_written(eventful_build):
    with Path("/dev/full").open("w") as full:
        listing = ("explain", "--path=salted.jsonl", f"--workdir={eventful_build}")
        code, _, message = command(*listing, stdout=full.fileno())
    told = "[Errno 28] No space left on device; make room, then start again\n"
    assert (code, message) == (78, told)


def test_a_locale_that_knows_ascii_only(tmp_path):
    recipe = small.one_source(tmp_path, "txt", 中文__txt=small.chinese(1, 900).encode())
    small.run(replace(recipe, heldout=HeldoutConfig(0)), tmp_path)
    ascii = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ask = ("explain", f"--workdir={tmp_path}")
    code, listing, message = command(
        *ask, "--path=中文.txt", stdout=subprocess.PIPE, environment=ascii
    )
    assert (code, message) == (0, "")
    code, words, message = command(*ask, listing[:32], stdout=subprocess.PIPE, environment=ascii)
    assert (code, message) == (0, "")
    assert r"file:        \u4e2d\u6587.txt, offset 0" in words


# ---- the commands --------------------------------------------------------------------------------


def test_every_step_is_a_command():
    assert list(STEPS) == list(BUILD_STEPS)


COMMANDS = [name if name != "tokenizer" else "tokenizer train" for name in STEPS]
COMMANDS += ["build", "sample", "verify", "explain", "mixture", "tokenizer evaluate"]


@pytest.mark.parametrize("command", ["", "tokenizer", *COMMANDS])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as e:
        main([*command.split(), "--help"])
    assert e.value.code == 0
    text = capsys.readouterr().out
    assert {"": "exact", "tokenizer": "evaluate"}.get(command, "--workdir") in text


def test_parsing_imports_nothing_heavy_and_the_build_no_jax():
    code = "import sys, data_tools.__main__; print(*sys.modules)"
    found = modules(code)
    assert not found & {"numpy", "pyarrow", "sentencepiece", "ml_collections", "tqdm"}
    code = "import sys, data_tools.build, data_tools.sample; print(*sys.modules)"
    assert not modules(code) & {"jax", "jaxlib", "flax", "optax", "orbax", "grain"}


def modules(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
