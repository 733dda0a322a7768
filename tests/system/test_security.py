"""A whole run: what it reads is never unpickled, and secrets of its environment stay there."""

import sys

import pytest

from bench import runs

pytestmark = pytest.mark.system

WATCHED = """
import sys
def hook(event, args):
    if event == "pickle.find_class":
        print("UNPICKLED", args, flush=True)
sys.addaudithook(hook)
from jaxlm import cli
code = cli.main(sys.argv[1:])
import pickle, pathlib
pickle.loads(pickle.dumps(pathlib.PurePath()))
sys.exit(code)
"""
"""The last but one line shows that the hook is there."""
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "planted-key-1f0e",
    "HF_TOKEN": "planted-token-2a9c",
    "JAXLM_PASSWORD": "planted-password-77d1",
}


def test_nothing_is_unpickled_and_no_secret_is_written(config, tmp_path, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    workdir = tmp_path / "run"
    short = ("train.end=20 steps", "checkpoint.snapshot_every=10 steps", "log.tensorboard=True")
    launch = runs.launch(config, workdir, *short, processes=1)
    code, output = runs.finish(launch, tmp_path / "first.log")
    assert code == 0, output
    runs.go_back(workdir, 20)
    # TensorBoard's writer has a queue between its threads that pickles.
    more = ("train.end=30 steps", "log.tensorboard=False")
    command = runs.train(config, workdir, *short, *more)  # verifies and restores
    code, output = runs.finish([sys.executable, "-c", WATCHED, *command[3:]], tmp_path / "log")
    assert code == 0 and "resuming at step 20" in output, output
    assert output.count("UNPICKLED") == output.count("('pathlib") > 0, output
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(written) > 30 and any("tfevents" in p.name for p in written)
    for path in written:
        data = path.read_bytes()
        for name, value in SECRETS.items():
            assert value.encode() not in data, f"{path} has the value of {name}"
