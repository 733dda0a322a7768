"""Without an accelerator JAX looks for none, and says nothing; with one it has its variables."""

import os
import subprocess
import sys
from pathlib import Path

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


VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "CUDA_DEVICE_MAX_CONNECTIONS")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def with_gpus(proc: Path, *models: str) -> Path:
    """What NVIDIA's driver writes there, for each GPU."""
    for i, model in enumerate(models):
        path = proc / f"driver/nvidia/gpus/0000:{i:02x}:00.0/information"
        path.parent.mkdir(parents=True)
        path.write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-{i}\n"
            "Video BIOS: \t 96.00.74.00.01\nBus Type: \t PCIe\nGPU Excluded:\t No\n"
        )
    return proc


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


def test_a_run_takes_the_share_of_a_gpu_that_plans_count_on(dev, tmp_path, monkeypatch):
    platforms.choose(dev, tmp_path)
    assert variables() == {"XLA_CLIENT_MEM_FRACTION": "0.92"}
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.5")
    platforms.choose(dev, tmp_path)
    assert variables() == {"XLA_CLIENT_MEM_FRACTION": "0.5"}


@pytest.mark.parametrize(
    ("models", "chip", "queues"),
    [
        (8 * ["NVIDIA H100 80GB HBM3"], "h100", "1"),
        (["NVIDIA A100-SXM4-40GB"], "a100-40g", "1"),
        (["NVIDIA B200"], "b200", None),
        (["NVIDIA GeForce RTX 4090"], None, None),
        (["NVIDIA H100 80GB HBM3", "NVIDIA B200"], None, None),
        (["Unknown"], None, None),
    ],
)
def test_a_gpu_has_the_variables_of_its_chip(dev, tmp_path, models, chip, queues):
    (dev / "nvidia0").touch()
    proc = with_gpus(tmp_path / "proc", *models)
    found = platforms.gpu(proc)
    assert (found and found.name) == chip
    platforms.choose(dev, proc)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.92" and "JAX_PLATFORMS" not in os.environ
    assert os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == queues


def test_what_the_user_has_set_stands(dev, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    platforms.choose(dev, with_gpus(tmp_path / "proc", "NVIDIA H100 80GB HBM3"))
    assert variables() == {"XLA_CLIENT_MEM_FRACTION": "0.92", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}


def test_a_driver_that_cannot_be_read_says_nothing(dev, tmp_path):
    (tmp_path / "proc/driver/nvidia/gpus/0/information").mkdir(parents=True)
    platforms.choose(dev, tmp_path / "proc")
    assert variables() == {"XLA_CLIENT_MEM_FRACTION": "0.92"}


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
