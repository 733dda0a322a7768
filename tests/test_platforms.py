"""Without an accelerator JAX looks for none, and says nothing."""

import os
import subprocess
import sys

import pytest

from jaxlm import platforms

QUIET = """
from jaxlm import cli
try:
    cli.main(["status", "--workdir=/nowhere"])
except SystemExit:
    pass
import jax
print(jax.default_backend())
"""


@pytest.fixture
def dev(tmp_path):
    for name in ("null", "vfio/vfio", "dri/card0"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "")  # so that it is put back
    monkeypatch.delenv("XLA_CLIENT_MEM_FRACTION")


@pytest.mark.parametrize("name", ["accel0", "vfio/0", "nvidia0", "nvidiactl", "dxg", "kfd"])
def test_an_accelerator_is_left_to_jax(dev, name):
    (dev / name).touch()
    platforms.choose(dev)
    assert platforms.attached(dev) and "JAX_PLATFORMS" not in os.environ


def test_without_one_it_is_the_cpu(dev):
    platforms.choose(dev)
    assert not platforms.attached(dev) and os.environ["JAX_PLATFORMS"] == "cpu"


def test_a_choice_stands(dev, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu,cpu")
    platforms.choose(dev)
    assert os.environ["JAX_PLATFORMS"] == "tpu,cpu"


def test_a_run_takes_the_share_of_a_gpu_that_plans_count_on(dev, monkeypatch):
    platforms.choose(dev)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.92"
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.5")
    platforms.choose(dev)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.5"


def test_no_dev_no_choice(tmp_path):
    platforms.choose(tmp_path / "dev")
    assert "JAX_PLATFORMS" not in os.environ


@pytest.mark.skipif(platforms.attached(), reason="this machine has an accelerator")
def test_a_command_starts_jax_in_silence():
    """With the compilers of TPU and GPU installed, it is not their errors that come first."""
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.stdout.splitlines()[-1] == "cpu", done.stderr
    assert [line for line in lines if not line.startswith("jaxlm status:")] == []
