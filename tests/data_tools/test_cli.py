"""The command line: exit codes, messages without tracebacks, nothing heavy before parsing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.__main__ import STEPS, main
from data_tools.build import STEPS as BUILD_STEPS
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
    assert f"1 of {len(made['shards'])} shards differ from their sha256" in message
    assert made["shards"][0]["path"] in message


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


def test_every_step_is_a_command():
    assert list(STEPS) == list(BUILD_STEPS)


@pytest.mark.parametrize("command", ["", "build", "sample", "verify", *STEPS])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as e:
        main([*command.split(), "--help"])
    assert e.value.code == 0
    text = capsys.readouterr().out
    assert ("--workdir" in text) if command else ("exact" in text)


def test_parsing_imports_nothing_heavy_and_the_build_no_jax():
    code = "import sys, data_tools.__main__; print(*sys.modules)"
    found = modules(code)
    assert not found & {"numpy", "pyarrow", "sentencepiece", "ml_collections", "tqdm"}
    code = "import sys, data_tools.build, data_tools.sample; print(*sys.modules)"
    assert not modules(code) & {"jax", "jaxlib", "flax", "optax", "orbax", "grain"}


def modules(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
