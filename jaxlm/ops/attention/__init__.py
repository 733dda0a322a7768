"""Attention kernels. A new one is a file, and a line in `ATTENTION`."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from jaxlm.ops.attention import reference
from jaxlm.schema import ConfigError

type Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""q [B, T, H, K], k and v [B, T, N, K] -> [B, T, H, K]; causal, documents kept apart."""


class Kernel(NamedTuple):
    """A way to compute attention over packed rows."""

    make: Callable[[jax.Array], Attend]
    """segments [B, T] -> the function of q, k and v."""
    platforms: tuple[str, ...]
    """Where it runs: JAX's names."""


ATTENTION: dict[str, Kernel] = {
    "reference": Kernel(reference.make, ("cpu", "tpu", "cuda")),
}


def choose(name: str, device: jax.Device) -> str:
    """The kernel that `config.model.attention` means on a device; `ConfigError` if it cannot."""
    if name == "auto":
        return "reference"
    if name not in ATTENTION:
        known = ", ".join(("auto", *ATTENTION))
        raise ConfigError(f"config.model.attention={name!r}: must be one of {known}")
    return name
