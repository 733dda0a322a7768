"""The least time a step can take, from what its program computes and moves and a chip's data sheet.

Each resource is taken at its published rate, as if nothing ever waited: the slowest of them is a
bound that no run beats, and their sum is what a step takes if nothing overlaps. A real step lies
between the two where it runs at the published rates, and above where it does not.

To and from the host, bytes are counted one direction after the other. A link that carries both at
once may take as little as half of that: for the host the figure is no strict bound.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxlm.plan.minimum import Move
from jaxlm.plan.target import Target

FLOAT32_RATE = {"tpu": 1.0, "cuda": 0.5}
"""Of float32 products over bf16's, at JAX's default precision: TPUs round to bf16, GPUs to TF32."""


@dataclass(frozen=True)
class Roofline:
    """Seconds that a device is busy with a step, by what it is busy with."""

    compute: float
    """Matrix products and attention, at the bf16 peak; float32 ones as `FLOAT32_RATE` has it."""
    memory: float
    """Its own memory: the operands and results of every operation."""
    link: float
    """ICI or NVLink, all links of the device at once."""
    network: float
    """Between slices or nodes."""
    host: float = 0.0
    """To the host's memory and back: what is offloaded, one direction after the other."""

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        return {
            "compute": self.compute,
            "memory": self.memory,
            "link": self.link,
            "network": self.network,
            "host": self.host,
        }

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def step_s(self) -> float:
        """The least time of a step: all resources busy at once."""
        return max(self.parts.values())

    @property
    def serial_s(self) -> float:
        """The time of a step in which nothing overlaps."""
        return sum(self.parts.values())

    @property
    def rank_s(self) -> float:
        """Midway between the two, to sort by."""
        return (self.step_s + self.serial_s) / 2


def roofline(
    target: Target,
    mesh_shape: Mapping[str, int],
    *,
    flops: float,
    float32_flops: float = 0.0,
    hbm_bytes: float,
    moves: Iterable[Move],
    host_bytes: float = 0.0,
) -> Roofline:
    """The roofline of a program: FLOPs and bytes of one device and step, loops multiplied.

    `flops` are all; `float32_flops` those among them whose operands are float32.
    """
    chip, link, network = target.chip, 0.0, 0.0
    slowed = flops + float32_flops * (1 / FLOAT32_RATE[chip.platform] - 1)
    for move in moves:
        fast, slow = split(move, mesh_shape, target.per_domain)
        link += fast
        network += slow
    return Roofline(
        compute=slowed / (chip.bf16_tflops * 1e12),
        memory=hbm_bytes / chip.memory_bandwidth,
        link=link / chip.link_bandwidth,
        network=network / chip.network_bandwidth,
        host=host_bytes / chip.host_bandwidth,
    )


def split(move: Move, mesh_shape: Mapping[str, int], per_domain: int) -> tuple[float, float]:
    """Bytes a device sends over the fast links, and its share of those that leave its domain.

    A domain is `per_domain` devices, one after the other in the mesh, that share the fast links.

    Collectives over several domains run in rings that cross a boundary once a domain, each of the
    g devices of a domain with a ring of its own, so that all its network cards are busy: of the w
    bytes that each of n devices in k domains sends in a ring, w n/(n-1) (k-1)/k cross, divided by
    g. An all-to-all has no such luck: each device sends to all that are elsewhere.
    """
    if move.between_slices:
        return 0.0, move.bytes
    n, k = span(move.axes, mesh_shape, per_domain)
    if n == 1 or k == 1:
        return move.bytes, 0.0
    if move.kind == "collective-permute":  # some step crosses, and the others wait for it
        return move.bytes, move.bytes
    if move.kind == "all-to-all":
        crossing = move.bytes * (n - n / k) / (n - 1)
        return move.bytes - crossing, crossing
    crossing = move.bytes * n / (n - 1) * (k - 1) / k / (n / k)
    return (0.0 if n == k else move.bytes), crossing


def span(axes: Sequence[str], mesh_shape: Mapping[str, int], per_domain: int) -> tuple[int, int]:
    """Devices of a group over these axes, and in how many domains they lie."""
    shape = tuple(mesh_shape.values())
    domains = np.arange(math.prod(shape)).reshape(shape) // per_domain
    group = domains[tuple(slice(None) if axis in axes else 0 for axis in mesh_shape)]
    return group.size, len(np.unique(group))
