"""Which hardware JAX looks for at all, and how much of a GPU's memory it takes.

With the compilers of accelerators installed, JAX probes for the hardware, and on a machine without
any that takes seconds and prints a page of errors. Standard library only; called before JAX is
imported.
"""

import os
from pathlib import Path

from jaxlm.hardware import GPU_MEMORY_SHARE

DEVICES = ("accel*", "vfio/*", "nvidia*", "dxg", "kfd")
"""Files in /dev that come with an accelerator: TPU, TPU, NVIDIA, Windows' Linux, AMD."""


def choose(dev: Path = Path("/dev")) -> None:
    """Where no accelerator is attached, tells JAX to use the CPU; a choice of the user's stands.

    On other systems than Linux there is no /dev to tell from, and nothing is chosen. Of a GPU, XLA
    is to take what plans count on.
    """
    os.environ.setdefault("XLA_CLIENT_MEM_FRACTION", str(GPU_MEMORY_SHARE))
    if "JAX_PLATFORMS" not in os.environ and dev.is_dir() and not attached(dev):
        os.environ["JAX_PLATFORMS"] = "cpu"


def attached(dev: Path = Path("/dev")) -> bool:
    """Whether the machine has an accelerator that JAX could use."""
    return any(path.name != "vfio" for pattern in DEVICES for path in dev.glob(pattern))
