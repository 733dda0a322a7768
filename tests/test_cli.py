"""The command line: quick to help, and wrong usage told in one line with exit code 2."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxlm import workdir
from jaxlm.cli import main, parser

COMMANDS = ("train", "plan", "evaluate", "sample", "trace", "status", "config", "demo")
HEAVY = ("jax", "flax", "numpy", "ml_collections", "orbax", "tensorflow")
FRAMEWORKS = ("flax", "grain", "optax", "orbax", "pyarrow", "scipy", "tensorboardX", "tensorstore")

CONFIG = """\
from jaxlm.config import schema

def get_config():
    c = schema()
    c.data.source = "synthetic"
    return c
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.py"
    path.write_text(CONFIG)
    return path


def imported(*args: str) -> tuple[str, set[str]]:
    """What `jaxlm ...` prints, and the packages that it imports."""
    command = [sys.executable, "-X", "importtime", "-m", "jaxlm", *args]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 2), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.stdout, {line.split("|")[-1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_imports_nothing_heavy(command):
    text, packages = imported(*command, "--help")
    assert text.startswith(f"usage: {' '.join(('jaxlm', *command))}")
    assert "75 start me again" in text
    assert "argparse" in packages and packages.isdisjoint(HEAVY)


def test_all_commands_are_known_here():
    listed = next(line for line in parser().format_help().splitlines() if "COMMAND" in line)
    assert listed
    for name in COMMANDS:
        assert f"\n    {name} " in parser().format_help()


def test_what_only_reads_files_imports_no_jax(tmp_path, config):
    (tmp_path / "config.json").write_text("{}")
    text, packages = imported("config", f"--config={config}")
    assert "config.data.source = 'synthetic'" in text
    assert packages.isdisjoint({*HEAVY, *FRAMEWORKS} - {"ml_collections"})
    for command in (("status",), ("trace", "--step=1"), ("evaluate",)):
        _, packages = imported(*command, f"--workdir={tmp_path / 'none'}")
        assert "argparse" in packages and packages.isdisjoint({"jax", *FRAMEWORKS})


def test_status_of_a_run_imports_no_jax(tmp_path):
    start = {"step": 0, "position": 0, "batch_size": 8, "processes": 1}
    (tmp_path / "history.jsonl").write_text(json.dumps(start) + "\n")
    workdir.write_status(tmp_path, "training", 1, 8, 800, None)
    text, packages = imported("status", f"--workdir={tmp_path}")
    assert "step" in text and packages.isdisjoint({"jax", *FRAMEWORKS})


def test_a_mistake_in_a_config_is_told_before_jax_is_imported(config, tmp_path):
    _, packages = imported(
        "train", f"--config={config}", f"--workdir={tmp_path / 'run'}", "--config.train.bach_size=1"
    )
    assert "ml_collections" in packages and "jax" not in packages


def fails(capsys, *args: str) -> str:
    """What a command that ends with code 2 says."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"jaxlm {args[0]}: ") and "Traceback" not in err
    return err.removeprefix(f"jaxlm {args[0]}: ").strip()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "--config.optim.lrr=1",
            "config.optim.lrr: unknown field; did you mean lr? fields here: name, lr, ",
        ),
        ("--config.train.batch_size=many", "config.train.batch_size='many': must be int"),
        ("--config.train.batch_size", "--config.train.batch_size: write --config.train.batch_"),
    ],
)
def test_a_wrong_override(config, tmp_path, capsys, override, message):
    run = tmp_path / "run"
    said = fails(capsys, "train", f"--config={config}", f"--workdir={run}", override)
    assert said.startswith(message)
    assert not run.exists()


def test_a_missing_config(tmp_path, capsys):
    said = fails(capsys, "train", "--config=nowhere.py", f"--workdir={tmp_path}")
    assert said == "--config=nowhere.py: no such file"


def test_a_typo_in_a_config_file(config, tmp_path, capsys):
    config.write_text(CONFIG.replace("c.data.source", "c.data.sourc"))
    said = fails(capsys, "train", f"--config={config}", f"--workdir={tmp_path / 'run'}")
    assert said == (
        f'{config}:5: Key "sourc" does not exist and cannot be added since the config is locked.\n'
        'Did you mean "source" instead of "sourc"?'
    )


@pytest.mark.parametrize("command", ["evaluate", "sample", "status"])
def test_a_directory_in_which_nothing_has_run(tmp_path, capsys, command):
    assert "has a run started?" in fails(capsys, command, f"--workdir={tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["trian"], "invalid choice: 'trian' (choose from"),
        (["train"], "the following arguments are required: --config, --workdir"),
        (["train", "--config=a", "--workdir=b", "--lr=1"], "unrecognized arguments: --lr=1"),
        (["sample", "--workdir=a", "--top-k=few"], "argument --top-k: invalid int value: 'few'"),
        (["trace", "--workdir=a"], "one of the arguments --step --position --document is required"),
        (["trace", "--workdir=a", "--step=1", "--position=2"], "not allowed with argument"),
        (["status", "--workdir=a", "--config.optim.lr=1"], "status takes no --config.optim.lr=1"),
    ],
)
def test_wrong_usage(capsys, args, message):
    with pytest.raises(SystemExit) as exit:
        main(args)
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (["--processes=2"], "--processes=2 needs --coordinator=HOST:PORT"),
        (["--processes=2", "--coordinator=here"], "--coordinator=here: write HOST:PORT"),
        (["--process=1"], "--process=1 is not one of --processes=1, counted from 0"),
        (["--processes=0"], "--process=0 is not one of --processes=0, counted from 0"),
    ],
)
def test_a_process_without_a_place(config, tmp_path, capsys, place, message):
    run = tmp_path / "run"
    assert fails(capsys, "train", f"--config={config}", f"--workdir={run}", *place) == message


def test_wrong_sampling_is_told_by_its_flag(tmp_path, capsys):
    assert fails(capsys, "sample", f"--workdir={tmp_path}", "--top-p=2") == (
        "--top-p=2.0: must be above 0 and at most 1"
    )


def test_status(tmp_path, capsys):
    workdir.write_status(tmp_path, "training", 5, 40, 80, saved=4)
    assert main(["status", f"--workdir={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dead: no process is there; the same command goes on from its start",
        "",
        "step         5",
        "rows         40 of 80   50.0%",
        "checkpoint   none yet",
        "snapshot     none yet",
    ]


def test_config_prints_every_field_as_it_will_be(config, capsys):
    assert main(["config", f"--config={config}", "--config.optim.lr=0.5"]) == 0
    out = capsys.readouterr().out
    assert "config.optim.lr = 0.5  [recorded]\n    Peak learning rate." in out
    assert "config.data.source = 'synthetic'  [fixed]" in out
    assert main(["config", "--config.train.seed=9"]) == 0
    assert "config.train.seed = 9  [fixed]" in capsys.readouterr().out


def test_ctrl_c_is_no_bug():
    """It ends by the signal, as a shell expects, but without a traceback."""
    code = "\n".join([
        "from jaxlm import cli, config",
        "def load(*_): raise KeyboardInterrupt",
        "config.load = load",
        "cli.main(['config'])",
    ])  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "KeyboardInterrupt\n")


def test_output_that_nobody_reads_to_the_end_is_no_error():
    """`jaxlm config | head -1`"""
    command = f"{sys.executable} -m jaxlm config | (read line; sleep 0.1)"
    began = time.monotonic()
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and time.monotonic() - began < 60


@pytest.mark.parametrize("flag", ["--workdir", "--init-from"])
def test_a_url_does_not_become_a_directory(tmp_path, monkeypatch, capsys, config, flag):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as e:
        main(["train", f"--config={config}", "--workdir=w", f"{flag}=s3://key:hunter2@bucket/run"])
    said = capsys.readouterr().err
    assert e.value.code == 2 and "was given with a user" in said
    assert "hunter2" not in said and {p.name for p in tmp_path.iterdir()} <= {"config.py"}
