"""The accelerators that launchers know, by name, and the shapes in which they are to be had.

A target is written as for `jaxlm plan`: a TPU slice in chips, `v5p:4x4x8`; GPUs as nodes x GPUs a
node, `h100:4x8`, where `h100:8` is one node.

Sources: docs.cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (machine types, labels,
topologies) and .../tpu-ironwood, docs.cloud.google.com/tpu/docs/runtimes (runtime versions, and
that the Cloud TPU API has no TPU7x), docs.cloud.google.com/compute/docs/accelerator-optimized-
machines (GPU machines and memory), and Google's own launcher xpk 1.16 (core/system_characteristics)
for the values of the labels. The memory of tpu7x machines of one chip is a quarter of those of
four: assumed. Nothing here was tried on a cluster.
"""

import functools
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from launch import fabric
from launch.fabric import Fabric

LARGEST = 32_768
"""GPUs of a target, at most, as in `jaxlm plan`."""

FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
"""Slices in two dimensions."""
SMALL = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
"""Those in three that are not made of whole cubes of 4 x 4 x 4 chips."""

EXAMPLES = "v5p:4x4x8, v6e:16x16, h100:4x8"


@dataclass(frozen=True)
class TpuVm:
    """How the Cloud TPU API names slices: `--accelerator-type`, `--runtime-version`."""

    prefix: str
    per_chip: int
    """What the number after the prefix counts: 2 a chip are cores."""
    runtime: str


@dataclass(frozen=True)
class Machine:
    """One kind of accelerator, and the machine of Google's that has it."""

    name: str
    """As in a target."""
    kind: Literal["tpu", "gpu"]
    chips: int
    """Of a host."""
    machine_type: str
    label: str
    """Value of `cloud.google.com/gke-tpu-accelerator` or `cloud.google.com/gke-accelerator`."""
    memory_gib: int
    """Of a host."""
    dims: int = 2
    """Of a TPU slice."""
    largest: int = 0
    """Chips of the largest TPU slice."""
    machine_type_of_one: str = ""
    """Machine with a single TPU chip, for a slice of one; empty: there is none."""
    tpu_vm: TpuVm | None = None
    fabric: Fabric | None = None
    """Of GPU machines with a network for RDMA."""


_MACHINES = (
    Machine(
        "v4", "tpu", 4, "ct4p-hightpu-4t", "tpu-v4-podslice", 407, dims=3, largest=4096,
        tpu_vm=TpuVm("v4", 2, "tpu-ubuntu2204-base"),
    ),
    Machine(
        "v5e", "tpu", 4, "ct5lp-hightpu-4t", "tpu-v5-lite-podslice", 192, largest=256,
        machine_type_of_one="ct5lp-hightpu-1t",
        tpu_vm=TpuVm("v5litepod", 1, "v2-alpha-tpuv5-lite"),
    ),
    Machine(
        "v5p", "tpu", 4, "ct5p-hightpu-4t", "tpu-v5p-slice", 448, dims=3, largest=6144,
        tpu_vm=TpuVm("v5p", 2, "v2-alpha-tpuv5"),
    ),
    Machine(
        "v6e", "tpu", 4, "ct6e-standard-4t", "tpu-v6e-slice", 720, largest=256,
        machine_type_of_one="ct6e-standard-1t", tpu_vm=TpuVm("v6e", 1, "v2-alpha-tpuv6e"),
    ),
    Machine(
        "7x", "tpu", 4, "tpu7x-standard-4t", "tpu7x", 960, dims=3, largest=9216,
        machine_type_of_one="tpu7x-standard-1t",
    ),
    Machine("a100-40g", "gpu", 8, "a2-highgpu-8g", "nvidia-tesla-a100", 680),
    Machine("a100", "gpu", 8, "a2-ultragpu-8g", "nvidia-a100-80gb", 1360),
    Machine(
        "h100", "gpu", 8, "a3-megagpu-8g", "nvidia-h100-mega-80gb", 1872, fabric=fabric.TCPXO
    ),
    Machine("h200", "gpu", 8, "a3-ultragpu-8g", "nvidia-h200-141gb", 2952, fabric=fabric.GIB),
    Machine("b200", "gpu", 8, "a4-highgpu-8g", "nvidia-b200", 3968, fabric=fabric.GIB),
)  # fmt: skip

MACHINES: dict[str, Machine] = {machine.name: machine for machine in _MACHINES}


@dataclass(frozen=True)
class Target:
    """A TPU slice, or GPU nodes."""

    machine: Machine
    shape: tuple[int, ...]
    """TPU: chips along each axis. GPU: nodes, GPUs a node."""

    def __str__(self) -> str:
        return f"{self.machine.name}:{self.topology}"

    @property
    def topology(self) -> str:
        """`4x4x8`."""
        return "x".join(map(str, self.shape))

    @property
    def chips(self) -> int:
        """In all: of the slice, or of all nodes."""
        return math.prod(self.shape)

    @property
    def chips_per_host(self) -> int:
        """That the program uses on each host."""
        return min(self.machine.chips, self.chips if self.is_tpu else self.shape[1])

    @property
    def hosts(self) -> int:
        """Of the slice, or nodes."""
        return self.chips // self.chips_per_host

    @property
    def is_tpu(self) -> bool:
        """Whether the shape is a slice's."""
        return self.machine.kind == "tpu"

    @property
    def machine_type(self) -> str:
        """Of each host."""
        return self.machine.machine_type_of_one if self._single else self.machine.machine_type

    @property
    def memory_gib(self) -> int:
        """Of each host."""
        return self.machine.memory_gib // (self.machine.chips if self._single else 1)

    @property
    def _single(self) -> bool:
        """Whether it is a slice of one chip, on a machine with no more."""
        return self.is_tpu and self.chips == 1

    @property
    def resource(self) -> str:
        """What Kubernetes counts."""
        return "google.com/tpu" if self.is_tpu else "nvidia.com/gpu"

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels by which GKE knows a node for this."""
        if self.is_tpu:
            return {
                "cloud.google.com/gke-tpu-accelerator": self.machine.label,
                "cloud.google.com/gke-tpu-topology": self.topology,
            }
        return {"cloud.google.com/gke-accelerator": self.machine.label}

    @property
    def accelerator_type(self) -> str:
        """`--accelerator-type` of the Cloud TPU API, v5p-64; `ValueError` if it has none.

        The API gives the most compact slice of so many chips, so another shape is refused.
        """
        vm = self.machine.tpu_vm
        if vm is None:
            raise ValueError(
                f"{self}: is not to be had as a TPU VM: the Cloud TPU API has "
                f"{', '.join(m.name for m in MACHINES.values() if m.tpu_vm)}; use GKE"
            )
        usual = next(s for s in _shapes(self.machine) if math.prod(s) == self.chips)
        if self.shape != usual:
            raise ValueError(
                f"{self}: a TPU VM of {self.chips} chips comes as "
                f"{Target(self.machine, usual)}; use that shape, or GKE"
            )
        return f"{vm.prefix}-{self.chips * vm.per_chip}"


def parse(text: str) -> Target:
    """The target of a name; `ValueError` with the value, the rule that it breaks, and what is near.

    Legal are the topologies of `jaxlm plan`, less slices of one v4 or v5p chip, since a host of
    these has four.
    """
    name, _, shape_text = text.partition(":")
    machine = MACHINES.get(name)
    if machine is None:
        _refuse_sold(text, name)
        raise ValueError(f"{text!r}: no accelerator {name!r}; known are {', '.join(MACHINES)}")
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", shape_text):
        raise ValueError(f"{text!r}: write an accelerator and a shape, as {EXAMPLES}")
    shape = tuple(map(int, shape_text.split("x")))
    if machine.kind == "tpu":
        _check_slice(text, machine, shape)
    else:
        shape = (1, *shape) if len(shape) == 1 else shape
        _check_nodes(text, machine, shape)
    return Target(machine, shape)


def _refuse_sold(text: str, name: str) -> None:
    """Of a slice by the name that it is sold under, v5p-64: says which one it is."""
    prefix, _, number = name.rpartition("-")
    for machine in MACHINES.values():
        vm = machine.tpu_vm
        if vm is not None and prefix in (vm.prefix, machine.name) and number.isdecimal():
            chips = int(number) // vm.per_chip
            near = " or ".join(str(Target(machine, s)) for s in _near(machine, chips))
            raise ValueError(f"{text!r}: {chips} chips; write the chips along each axis, as {near}")


def _check_slice(text: str, machine: Machine, shape: tuple[int, ...]) -> None:
    if shape in _shapes(machine):
        return
    chips = math.prod(shape)
    if len(shape) != machine.dims:
        rule = f"a slice of {machine.name} has {machine.dims} dimensions, in chips"
    elif chips > machine.largest:
        rule = f"{chips:,} chips, but the largest slice has {machine.largest:,} (--slices: more)"
    elif chips % machine.chips:
        rule = f"chips={chips} is not a multiple of the {machine.chips} that a host has"
    else:
        whole = "AxBxC of multiples of 4 with A <= B <= C"
        known = ", ".join(FLAT) if machine.dims == 2 else f"{', '.join(SMALL)} and {whole}"
        rule = f"there is no such slice; there are {known}"
    near = " or ".join(str(Target(machine, s)) for s in _near(machine, chips))
    raise ValueError(f"{text!r}: {rule}; near are {near}")


@functools.cache
def _shapes(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """All slices that there are, of as many chips the most compact one first."""
    if machine.dims == 2:
        return tuple(map(_shape, FLAT))
    one = [(1, 1, 1)] if machine.machine_type_of_one else []
    edges = range(4, machine.largest // 16 + 1, 4)
    cubes = [
        (a, b, c)
        for a, b in itertools.combinations_with_replacement(edges, 2)
        for c in range(b, machine.largest // (a * b) + 1, 4)
    ]
    return (*one, *map(_shape, SMALL), *sorted(cubes, key=_size))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def _size(shape: Sequence[int]) -> tuple[int, int]:
    """Chips, then how far from a cube."""
    return math.prod(shape), max(shape)


def _near(machine: Machine, chips: int) -> list[tuple[int, ...]]:
    """Of that many chips, or the next smaller and the next larger."""
    found: dict[int, tuple[int, ...]] = {}
    for shape in _shapes(machine):
        found.setdefault(math.prod(shape), shape)
    if chips in found:
        return [found[chips]]
    below = max((n for n in found if n < chips), default=None)
    above = min((n for n in found if n > chips), default=None)
    return [found[n] for n in (below, above) if n is not None]


def _check_nodes(text: str, machine: Machine, shape: tuple[int, ...]) -> None:
    most = machine.chips
    if len(shape) != 2:
        raise ValueError(f"{text!r}: write nodes x GPUs a node, as {machine.name}:4x{most}")
    nodes, each = shape
    if each > most or most % each:
        raise ValueError(
            f"{text!r}: {each} GPUs a node, but a node of {machine.name} has {most}; use "
            f"{machine.name}:{nodes}x{most}, or on one node a divisor of it"
        )
    if nodes > 1 and each < most:
        raise ValueError(
            f"{text!r}: {nodes} nodes of {each} GPUs, but several nodes are used whole; use "
            f"{machine.name}:{nodes}x{most}"
        )
    if nodes * each > LARGEST:
        raise ValueError(
            f"{text!r}: {nodes * each:,} GPUs, but at most {LARGEST:,} are launched; use fewer"
        )
