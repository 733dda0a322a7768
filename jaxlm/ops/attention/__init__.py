"""Attention kernels. A new one is a file, and a line in `ATTENTION`."""

from jaxlib._jax import Device

from jaxlm.config import ModelConfig
from jaxlm.ops.attention import cpu, cudnn, pallas, reference, splash
from jaxlm.ops.attention.kernel import LSE, OUT, Attend, Call, Kernel, Need, platform_of
from jaxlm.schema import ConfigError

__all__ = [
    "ATTENTION",
    "LSE",
    "OUT",
    "Attend",
    "Call",
    "Kernel",
    "Need",
    "choose",
    "describe",
    "need",
]

ATTENTION: dict[str, Kernel] = {
    "splash": splash.KERNEL,
    "pallas": pallas.KERNEL,
    "cudnn": cudnn.KERNEL,
    "cpu": cpu.KERNEL,
    "reference": reference.KERNEL,
}
"""In the order in which `auto` tries them. cuDNN comes after Pallas as long as nobody has compared
its numbers and its time with the others' on a GPU, as `bench/gpu_check.sh` does."""


def need(cfg: ModelConfig, seq_len: int) -> Need:
    """What a model asks of its attention, over rows of so many tokens."""
    return Need(cfg.head_size, seq_len, cfg.compute_dtype)


def choose(name: str, device: Device, needed: Need) -> str:
    """The kernel that `config.model.attention` means on a device, real or compile-only.

    Raises `ConfigError` if it cannot do what the model needs there, with those that can.
    """
    if name != "auto" and name not in ATTENTION:
        known = ", ".join(("auto", *ATTENTION))
        raise ConfigError(f"config.model.attention={name!r}: must be one of {known}")
    able = [key for key, kernel in ATTENTION.items() if kernel.refusal(device, needed) is None]
    if name == "auto":
        return able[0]
    if name not in able:
        raise ConfigError(
            f"config.model.attention={name!r}: {ATTENTION[name].refusal(device, needed)}; "
            f"use auto, or one of {', '.join(able)}"
        )
    return name


def describe(name: str, device: Device, needed: Need) -> str:
    """The line that says which kernel a run uses; of the reference also why no other."""
    line = f"attention: {name} ({ATTENTION[name].about})"
    if name != "reference" or device.platform == "cpu":
        return line
    why = [
        f"{key} {kernel.refusal(device, needed) or 'was not asked for'}"
        for key, kernel in ATTENTION.items()
        if key != "reference" and not _elsewhere(kernel, device)
    ]
    return line + "; ".join(["", *why])


def _elsewhere(kernel: Kernel, device: Device) -> bool:
    return platform_of(device) not in kernel.platforms
