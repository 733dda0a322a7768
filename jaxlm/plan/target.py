"""Targets by name, `v5p:8x8x8` or `h100:32x8`, and devices of theirs to compile for without them.

The shape of a TPU is its slice's, in chips; that of GPUs is nodes x GPUs a node.
"""

import importlib.util
import math
import os
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from jaxlm.errors import EnvironmentProblem
from jaxlm.hardware import CHIPS, Chip
from jaxlm.plan import gpus
from jaxlm.plan.log import Log
from jaxlm.schema import ConfigError


class Slices(NamedTuple):
    """Which slices of a TPU there are."""

    libtpu_name: str
    dims: int
    torus_of: int
    """An axis of so many chips, or in three dimensions a multiple, closes to a ring."""
    chips: int
    """In the largest slice."""


SLICES: dict[str, Slices] = {
    "v4": Slices("v4", 3, 4, 4096),
    "v5e": Slices("v5e", 2, 16, 256),
    "v5p": Slices("v5p", 3, 4, 6144),
    "v6e": Slices("v6e", 2, 16, 256),
    "7x": Slices("tpu7x", 3, 4, 9216),
}
"""From Google's page of each version."""

SHAPES: dict[int, tuple[str, ...]] = {
    2: ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    3: ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4"),
}
"""Shapes of slices by dimensions, from the same pages; in three also AxBxC, multiples of 4 in
ascending order."""

CORES_SOLD = {"v4": 2, "v5p": 2}
"""Chips whose slices Google names by their cores: v5p-64 has 32 chips."""

LARGEST = 32_768
"""Devices of a target, at most: 4,096 nodes of 8 GPUs. Many more take all of the memory here."""

ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # there is no metadata server to ask what this machine is,
    "TPU_ACCELERATOR_TYPE": "v5p-8",  # so it is told: the names are not used, but asked for
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # compiling takes no chip from whoever trains here
    "TPU_STDERR_LOG_LEVEL": "0",  # libtpu's warnings are part of a plan
    "TPU_MIN_LOG_LEVEL": "0",
    "TPU_LOG_DIR": "disabled",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # that the CUDA of a GPU that is not there be whole
}
"""For the compilers, in this process only; read when they are loaded."""

EXAMPLES = "v5p:4x4x4, v5e:16x16, h100:4x8"


@dataclass(frozen=True)
class Target:
    """Devices that need not be there."""

    chip: Chip
    shape: tuple[int, ...]
    """TPU: chips along each axis of a slice. GPU: nodes, GPUs a node."""
    slices: int = 1
    """TPU slices, joined by the data centre's network."""

    def __str__(self) -> str:
        slices = f"{self.slices} x " if self.slices > 1 else ""
        return f"{slices}{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        """In all slices."""
        return math.prod(self.shape) * self.slices

    @property
    def size(self) -> int:
        """Devices, as JAX counts them, in all slices."""
        return self.chips * self.chip.devices_per_chip

    @property
    def per_domain(self) -> int:
        """Devices that share the fast links: of a TPU slice, or of a GPU node."""
        return self.size // self.slices if self.chip.platform == "tpu" else self.shape[1]

    def devices(self) -> list[Any]:
        """Devices to compile for; nothing can run on them.

        Raises `ConfigError` where the compiler knows no such slice, `EnvironmentProblem` where the
        compiler is not installed.
        """
        prepare()
        # The compilers say at length what devices they do not find here.
        with Log("describing the target"):
            try:
                found = self._tpus() if self.chip.platform == "tpu" else self._gpus()
            except jax.errors.JaxRuntimeError as e:
                raise ConfigError(f"target {self}: {str(e).partition(chr(10))[0]}") from None
        assert len(found) == self.size, (str(self), len(found))
        return found

    def _tpus(self) -> list[Any]:
        need("libtpu", "TPU")
        known = SLICES[self.chip.name]
        name = f"{known.libtpu_name}:{'x'.join(map(str, self.shape))}"
        bounds = (2, 2, 1) if math.prod(self.shape) > 1 else (1, 1, 1)
        # The two cores of a v4 chip are one device to JAX, but only if libtpu is told so.
        config = "megacore" if self.chip.name == "v4" else "default"
        return topologies.get_topology_desc(
            name,
            "tpu",
            wrap=self.wraps,
            num_slices=self.slices,
            chips_per_host_bounds=bounds,
            chip_config_name=config,
        ).devices

    def _gpus(self) -> list[Any]:
        need("jax_plugins.xla_cuda13", "GPU")
        nodes, each = self.shape
        return topologies.get_topology_desc(
            self.chip.name,
            "cuda",
            topology=f"1x{nodes}x{each}",
            target_config=gpus.target_config(self.chip),
        ).devices

    @property
    def wraps(self) -> tuple[bool, bool, bool]:
        """Which axes of a TPU slice close to a ring, as those of the real slice do.

        v4, v5p, 7x: all of them, of slices that are made of whole cubes of 4 x 4 x 4 chips; v5e and
        v6e: axes of 16. A compiler that is not told so all-reduces where it could all-gather.
        """
        known = SLICES[self.chip.name]
        rings = [n % known.torus_of == 0 for n in self.shape]
        if known.dims == 3:
            rings = [all(rings)] * 3
        return tuple([*rings, False][:3])  # pyright: ignore[reportReturnType]


def parse(text: str, slices: int = 1) -> Target:
    """The target of a name; `ConfigError` with the rule that it breaks."""
    name, _, shape_text = text.partition(":")
    if sold := re.fullmatch(r"([a-z0-9]+)-(\d+)", name):
        _refuse_sold(text, sold[1], int(sold[2]))
    if name not in CHIPS or name not in (*SLICES, *gpus.GPUS):
        known = [chip for chip in CHIPS if chip in SLICES or chip in gpus.GPUS]
        raise ConfigError(
            f"target {text!r}: no chip {name!r}; known are {', '.join(known)} (a100: 80 GB)"
        )
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape_text):
        raise ConfigError(f"target {text!r}: write a chip and a shape, as {EXAMPLES}")
    if slices < 1:
        raise ConfigError(f"target {text!r} in {slices} slices: at least 1")
    target = Target(CHIPS[name], tuple(map(int, shape_text.split("x"))), slices)
    (_check_tpu if name in SLICES else _check_gpu)(text, target)
    if target.size > LARGEST:
        raise ConfigError(
            f"target {str(target)!r}: {target.size:,} devices, but at most {LARGEST:,} are planned "
            "for; use fewer nodes or slices"
        )
    return target


def _check_tpu(text: str, target: Target) -> None:
    known, shape = SLICES[target.chip.name], target.shape
    chips = math.prod(shape)
    if len(shape) != known.dims:
        raise ConfigError(
            f"target {text!r}: a slice of {target.chip.name} has {known.dims} dimensions, in "
            f"chips; write it as {target.chip.name}:{_shape(known, chips) or _shape(known, 64)}"
        )
    if chips > known.chips:
        raise ConfigError(
            f"target {text!r}: {chips} chips, but the largest slice of {target.chip.name} has "
            f"{known.chips}; use a smaller one, and more of them (--slices)"
        )
    cubes = known.dims == 3 and not any(n % 4 for n in shape) and list(shape) == sorted(shape)
    if "x".join(map(str, shape)) not in SHAPES[known.dims] and not cubes:
        whole = ", and AxBxC of multiples of 4 with A <= B <= C" if known.dims == 3 else ""
        raise ConfigError(
            f"target {text!r}: there is no such slice of {target.chip.name}; use one of "
            f"{', '.join(SHAPES[known.dims])}{whole}"
        )


def _refuse_sold(text: str, name: str, number: int) -> None:
    """Of a slice by the name that it is sold under, v5p-64: says which one it is."""
    known = SLICES.get(name)
    if known is None:
        return
    chips = number // CORES_SOLD.get(name, 1)
    unit = f"{number} cores, {chips} chips" if name in CORES_SOLD else f"{chips} chips"
    shape = _shape(known, chips)
    remedy = f"{name}:{shape}" if shape else f"as {name}:{_shape(known, 64)}"
    raise ConfigError(f"target {text!r}: {unit}; write the chips along each axis, {remedy}")


def _shape(known: Slices, chips: int) -> str | None:
    """The most compact slice of so many chips; None if there is none."""
    if chips > known.chips:
        return None
    for shape in SHAPES[known.dims]:
        if math.prod(map(int, shape.split("x"))) == chips:
            return shape
    cubes = range(4, known.chips // 16 + 1, 4) if known.dims == 3 else ()
    fitting = [
        (a, b, chips // (a * b))
        for a in cubes
        for b in range(a, chips // a + 1, 4)
        if chips % (a * b) == 0 and chips // (a * b) >= b and chips // (a * b) % 4 == 0
    ]
    return "x".join(map(str, max(fitting))) if fitting else None


def _check_gpu(text: str, target: Target) -> None:
    most = target.chip.devices_per_host
    if len(target.shape) != 2:
        raise ConfigError(
            f"target {text!r}: write nodes x GPUs a node, as {target.chip.name}:4x{most}"
        )
    nodes, each = target.shape
    if each > most or most % each:
        raise ConfigError(
            f"target {text!r}: {each} GPUs a node, but a node of {target.chip.name} has {most}; "
            f"use {most}, or a divisor of it"
        )
    if nodes > 1 and each < most:
        raise ConfigError(
            f"target {text!r}: {nodes} nodes of {each} GPUs; several nodes are planned with all "
            f"{most} of each"
        )
    if target.slices > 1:
        raise ConfigError(
            f"target {text!r} in {target.slices} slices: slices are of TPUs; write more nodes, as "
            f"{target.chip.name}:{nodes * target.slices}x{each}"
        )


def prepare() -> None:
    """Makes this process one that compiles for others: its own devices are the CPU's.

    To be called before anything asks JAX for a device, if there may be an accelerator here.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    jax.config.update("jax_platforms", "cpu")


def need(module: str, hardware: str) -> None:
    """`EnvironmentProblem` if the compiler for this hardware is not installed."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # not even its package
        found = None
    if found is None:
        raise EnvironmentProblem(
            f"the {hardware} compiler is not installed here; pip install 'jaxlm[plan]' brings it "
            "(Linux on x86-64)"
        )
