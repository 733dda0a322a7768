"""Chips by name: what a device can hold, compute and move, from the makers' data sheets.

A device is what JAX calls one: a chip, or one of the two cores of a TPU v7x chip.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Chip:
    """Of one device; bytes a second in one direction."""

    name: str
    """As in a target: v5p, h100."""
    platform: Literal["tpu", "cuda"]
    kinds: tuple[str, ...]
    """What JAX calls such a device (`device_kind`)."""
    bf16_tflops: float
    """Dense peak."""
    memory_bytes: int
    """What a program may fill."""
    memory_bandwidth: float
    link_bandwidth: float
    """To the other devices of a slice or node: ICI or NVLink, all links together."""
    network_bandwidth: float
    """To other slices or nodes: a device's share of its host's network."""
    devices_per_host: int
    host_bytes: int
    """A device's share of its host's memory."""
    capability: tuple[int, int] = (0, 0)
    """Compute capability of a GPU."""


CHIPS: dict[str, Chip] = {}


def by_kind(kind: str) -> Chip | None:
    """The chip of a JAX device; None for a CPU or an unknown one."""
    return next((chip for chip in CHIPS.values() if kind in chip.kinds), None)
