"""What a kernel of attention is: where it runs, what it takes, and what it computes and moves.

Shapes: B rows, T tokens, H query heads, N key-value heads, K head width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jaxlib._jax import Device  # jax.Device is a variable to a type checker

type Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""q [B, T, H, K], k and v [B, T, N, K] -> [B, T, H, K]; causal, documents kept apart."""

type Shape = tuple[int, ...]

OUT, LSE = "attention_out", "attention_lse"
"""Names of what the backward pass needs of the forward: the output, and the log-sum-exp of each
query's scores. A checkpoint policy that saves both never runs the forward kernel again; the
reference has no log-sum-exp and marks its output alone."""


class Need(NamedTuple):
    """What a model asks of its attention."""

    head_size: int
    seq_len: int
    dtype: str


class Call(NamedTuple):
    """A call of a kernel as it stands in a compiled program, and its cost.

    FLOPs count a multiplication and an addition as two, and of the scores only the blocks at or
    below the diagonal that the kernel computes: about half of T x T. A kernel that also skips
    blocks between documents does less. Bytes go to and from the device's memory, what is read
    again for each block counted each time.
    """

    target: str
    """`custom_call_target`."""
    name: str
    """Part of the call's `op_name`, or of its kernel's name; "" where the target says it all."""
    flops: Callable[[Sequence[Shape], Sequence[Shape]], float]
    """Of the operands' and the results' shapes, as they stand in the program."""
    bytes: Callable[[Sequence[Shape], Sequence[Shape], int], float]
    """Of the same, and of the bytes of an element of q."""


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention over packed rows. All of them take grouped-query heads."""

    make: Callable[[jax.Array], Attend]
    """segments [B, T], which never decrease along a row -> the function of q, k and v."""
    platforms: tuple[str, ...]
    """Where it runs: JAX's names."""
    about: str
    """A line for the start of a run."""
    capability: tuple[int, int] = (0, 0)
    """Least compute capability of a GPU."""
    dtypes: tuple[str, ...] = ("bfloat16", "float32")
    head_sizes: tuple[int, ...] | None = None
    """None takes any."""
    seq_multiple: int = 1
    """Rows are whole multiples of so many tokens."""
    calls: tuple[Call, ...] = ()

    def refusal(self, device: Device, need: Need) -> str | None:
        """Why it cannot do this here; None if it can."""
        platform = platform_of(device)
        if platform not in self.platforms:
            return f"runs on {' and '.join(self.platforms)}, not on {platform}"
        if platform == "cuda" and capability_of(device) < self.capability:
            found, least = (".".join(map(str, c)) for c in (capability_of(device), self.capability))
            return f"needs compute capability {least}, and {device.device_kind} has {found}"
        if need.dtype not in self.dtypes:
            return f"computes in {' or '.join(self.dtypes)}, not in compute_dtype={need.dtype}"
        if self.head_sizes is not None and need.head_size not in self.head_sizes:
            return f"takes heads of {_list(self.head_sizes)}, not of head_size={need.head_size}"
        if need.seq_len % self.seq_multiple:
            return f"takes rows of a multiple of {self.seq_multiple}, not seq_len={need.seq_len}"
        return None


def pairs(seq_len: int, block: int) -> float:
    """Pairs of a query and a key in the blocks at or below the diagonal, a side of `block`."""
    blocks = -(-seq_len // block)
    return blocks * (blocks + 1) / 2 * block**2


def platform_of(device: Device) -> str:
    """cpu, tpu or cuda; of a compile-only device too."""
    return "cuda" if device.platform == "gpu" else device.platform


def capability_of(device: Device) -> tuple[int, int]:
    """Compute capability of a GPU, real or compile-only."""
    major, minor = str(device.compute_capability).split(".")
    return int(major), int(minor)


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}"
