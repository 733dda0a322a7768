"""Who holds a device's memory during a step, and whether it fits.

The figure that counts is the peak: what is alive at the worst moment, less what of it is pinned
memory of the host, which both compilers count too. TPU's refuses a program by it. GPU's compiles
anything: it recomputes to get below a limit of its own (`xla_gpu_memory_limit_slop_factor`), or
gives up doing so; whether the peak fits is for the plan to say.
"""

import math
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
from jax import stages

from jaxlm.state import TrainState

HOST_KINDS = ("pinned_host", "unpinned_host")
"""Memory of the host, as JAX calls it."""

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

REFUSED = re.compile(
    r"total memory required(?: for [\w ]+)? \(?([\d.]+)([KMGT]?)|Used ([\d.]+)([KMGT]?) of"
)
"""What a program would have taken, where TPU's compiler refuses it."""

HOLDER = re.compile(r"^\s*([\d.]+)([KMGT]?)i?B\([^)]*\);\s*([\d.]+)([KMGT]?)i?B;.*;\s*(\S+\[.*)$")
"""A line of the compiler's list of what is alive at the peak: running total, size, shapes."""


class Refused(RuntimeError):
    """The compiler refused a program for want of memory, in words that are not known here."""


class Memory(NamedTuple):
    """What the compiler says that a program takes of each device, in bytes."""

    peak: int
    """Alive at the worst moment: what has to fit."""
    host: int
    """Pinned memory of the host, a device's share."""
    host_arguments: int = 0
    """State in it, which is there before the step."""


class Holders(NamedTuple):
    """Who holds the peak, in bytes of each device."""

    parameters: int
    optimizer: int
    batch: int
    """Rows, and what the host decides."""
    rest: int
    """Gradients and temporaries: what the peak has besides."""
    host: int
    """Of the optimizer's state and of saved activations, in the memory of the host."""


class Fit(NamedTuple):
    """The verdict."""

    peak: int
    capacity: int
    """What a program may fill."""
    host: int
    host_capacity: int

    @property
    def fits(self) -> bool:
        """Whether device and host hold it."""
        return self.peak <= self.capacity and self.host <= self.host_capacity

    @property
    def headroom(self) -> float:
        """Free share of the device; below 0 if it does not fit."""
        return 1 - self.peak / self.capacity


def of_compiled(compiled: stages.Compiled, platform: str) -> Memory:
    """The memory of a program on `platform`, JAX's name.

    The compiler's own figure for the peak is of no use on a CPU, where it leaves temporaries out.
    Elsewhere it counts what is on the host: arguments always, temporaries where they are more than
    those of the device. It is never too low, nor is the sum of all that the device is given.
    """
    found = compiled.memory_analysis()
    assert found is not None, platform
    on_host = found.host_argument_size_in_bytes
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    peak = found.argument_size_in_bytes + found.temp_size_in_bytes + results
    if platform != "cpu":
        peak = min(peak, found.peak_memory_in_bytes - on_host)
    return Memory(peak, on_host + found.host_temp_size_in_bytes, on_host)


def of_refusal(text: str, state: TrainState) -> Memory:
    """The memory of a program that was refused with this message, which has to name it."""
    found = REFUSED.search(text)
    if found is None:
        raise Refused(text)
    _, host = parts(state)
    return Memory(_bytes(*(part for part in found.groups() if part is not None)), host, host)


def holders(memory: Memory, state: TrainState, batch: Any) -> Holders:
    """The peak by holder. State and batch are trees of shapes with shardings: those are exact.

    Only the optimizer's state is ever in the host's memory, but the sharding of a GPU that is not
    there does not say so: the compiler does.
    """
    parameters, rows = parts(state.params)[0], parts(batch)[0]
    optimizer = sum(parts(state.opt_state)) - memory.host_arguments
    rest = max(memory.peak - parameters - optimizer - rows, 0)
    return Holders(parameters, optimizer, rows, rest, memory.host)


def largest(log: str, count: int = 5) -> list[tuple[int, str]]:
    """(bytes, shapes) of what is alive at the peak, largest first, where the compiler lists it."""
    found = {}
    for line in log.splitlines():
        if match := HOLDER.match(line):
            _, _, size, unit, shapes = match.groups()
            found[shapes] = max(found.get(shapes, 0), _bytes(size, unit))
    return sorted(((size, shapes) for shapes, size in found.items()), reverse=True)[:count]


def parts(tree: Any) -> tuple[int, int]:
    """Bytes of one device's part of a tree of shapes with shardings: on the device, on the host."""
    device = host = 0
    for leaf in jax.tree.leaves(tree):
        sharding = leaf.sharding
        shape = leaf.shape if sharding is None else sharding.shard_shape(leaf.shape)
        size = math.prod(shape) * leaf.dtype.itemsize
        if sharding is not None and sharding.memory_kind in HOST_KINDS:
            host += size
        else:
            device += size
    return device, host


def attached_capacity(devices: Iterable[Any]) -> int:
    """Bytes that a program may fill on the fullest of these devices, which are attached."""
    local = [d for d in devices if d.process_index == jax.process_index()]
    limits = [(d.memory_stats() or {}).get("bytes_limit") for d in local]
    known = [limit for limit in limits if limit]
    if known:
        return min(known)
    return host_bytes() // len(local)  # the CPU's devices share what the machine has


def host_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes(number: str, unit: str = "") -> int:
    return int(float(number) * UNITS[unit])
