"""Which hardware JAX looks for at all, and the variables of a process that runs on it.

With the compilers of accelerators installed, JAX probes for the hardware, and on a machine without
any that takes seconds and prints a page of errors. Standard library only; called before JAX is
imported.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from jaxlm import hardware
from jaxlm.hardware import Chip

DEVICES = ("accel*", "vfio/*", "nvidia*", "dxg", "kfd")
"""Files in /dev that come with an accelerator: TPU, TPU, NVIDIA, Windows' Linux, AMD."""


class Variable(NamedTuple):
    """A setting of the environment, and why."""

    value: str
    reason: str


_GPU_MEMORY = {
    "XLA_CLIENT_MEM_FRACTION": Variable(
        str(hardware.GPU_MEMORY_SHARE),
        "XLA takes three quarters of a GPU's memory by default; the rest of this is for CUDA and "
        "NCCL. Plans count on it.",
    ),
}

_ONE_QUEUE = {
    "CUDA_DEVICE_MAX_CONNECTIONS": Variable(
        "1",
        "One hardware queue keeps the order in which XLA starts collectives and products, so that "
        "they overlap as scheduled. NVIDIA's advice up to Hopper; on Blackwell it advises against.",
    ),
}

ENVIRONMENT: dict[str, dict[str, Variable]] = {
    "v4": {},
    "v5e": {},
    "v5p": {},
    "v6e": {},
    "7x": {},
    "a100-40g": _GPU_MEMORY | _ONE_QUEUE,
    "a100": _GPU_MEMORY | _ONE_QUEUE,
    "h100": _GPU_MEMORY | _ONE_QUEUE,
    "h200": _GPU_MEMORY | _ONE_QUEUE,
    "b200": _GPU_MEMORY,
}
"""By chip, as in `jaxlm.hardware.CHIPS`. TPUs need none: all of libtpu's settings are options of a
program (`jaxlm.compiler`). NCCL's own defaults stand."""


def choose(dev: Path = Path("/dev"), proc: Path = Path("/proc")) -> None:
    """Sets the variables of this machine's chips, and where it has none, that JAX use the CPU.

    What the user has set himself stands. On other systems than Linux there is no /dev to tell
    from, and no platform is chosen.
    """
    for name, value in environment(proc).items():
        os.environ.setdefault(name, value)
    if is_cpu(dev):
        os.environ["JAX_PLATFORMS"] = "cpu"


def is_cpu(dev: Path = Path("/dev")) -> bool:
    """Whether JAX is to use the CPU: the user says so, or Linux knows of nothing else."""
    chosen = os.environ.get("JAX_PLATFORMS")
    return dev.is_dir() and not attached(dev) if chosen is None else chosen == "cpu"


def environment(proc: Path = Path("/proc")) -> dict[str, str]:
    """Variables for a process on this machine: of its GPUs, or of any if they are not known."""
    chip = gpu(proc)
    variables = _GPU_MEMORY if chip is None else ENVIRONMENT[chip.name]
    return {name: variable.value for name, variable in variables.items()}


def gpu(proc: Path = Path("/proc")) -> Chip | None:
    """What NVIDIA's driver says that the GPUs are; None if it says nothing or names no known chip.

    Also where they differ: a variable is for all of them.
    """
    models = set()
    for path in proc.glob("driver/nvidia/gpus/*/information"):
        with contextlib.suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            models |= {line.partition(":")[2].strip() for line in lines if line[:6] == "Model:"}
    return hardware.by_kind(models.pop()) if len(models) == 1 else None


def attached(dev: Path = Path("/dev")) -> bool:
    """Whether the machine has an accelerator that JAX could use."""
    return any(path.name != "vfio" for pattern in DEVICES for path in dev.glob(pattern))
