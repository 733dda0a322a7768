"""What the reader of a plan must be told: what is odd, what is doubtful, what could be better."""

from collections.abc import Iterator, Sequence

from jaxlm.hardware import GIB, GPU_MEMORY_SHARE
from jaxlm.plan.figures import Flops, Layout, Traffic
from jaxlm.plan.memory import Fit
from jaxlm.plan.remedy import STRONGER

ROOM = 0.05
"""Of a device's memory: evaluation, and what the allocator wastes, want at least so much."""

NOTABLE = 0.01
"""Of the bytes that a step sends: less is not worth a word."""

TOLERANCE = 1.05
"""Between executed and expected FLOPs."""

ABOVE_MINIMUM = 1.1
"""Bytes of a kind of collective over the written-out minimum."""

RECOMPUTES = "Can't reduce memory use below"
"""XLA's words where recomputing does not save enough."""

INVOLUNTARY = "Involuntary full rematerialization"
"""XLA's words where it gathers an array whole to change its sharding."""


GPU_SHARE = (
    f"the memory is that of a run with XLA_CLIENT_MEM_FRACTION={GPU_MEMORY_SHARE}; without it XLA "
    "sets aside 0.75 of the device"
)
"""Of a GPU that is not there: one that is says what it has."""


def of_memory(headroom: float) -> Iterator[str]:
    """About a program's memory; `headroom` is the free share of a device."""
    if 0 <= headroom < ROOM:
        yield (
            f"{headroom:.1%} of the memory is free: evaluation, and what the allocator wastes, "
            f"want {ROOM:.0%}"
        )


def of_host(fit: Fit, layout: Layout) -> Iterator[str]:
    """About the host's memory: what takes less of it, where it is too small."""
    if fit.host <= fit.host_capacity:
        return
    saved = "activations" in layout.offload
    ways = {
        "fewer config.train.rows_per_device": saved and layout.rows_per_device > 1,
        "a stronger config.model.remat": saved and layout.remat in STRONGER,
        "config.model.offload_activations=false": saved,
        "config.optim.offload=false": "optimizer" in layout.offload,
    }
    yield (
        f"a device's share of its host's memory is too small: {fit.host / GIB:.2f} GiB of "
        f"{fit.host_capacity / GIB:.2f}; what lowers it: "
        + ", ".join(way for way, helps in ways.items() if helps)
    )


def of_recomputing(log: str) -> Iterator[str]:
    """About a GPU's compiler that recomputes on its own account."""
    if RECOMPUTES in log:
        yield (
            "XLA recomputed to save memory, and did not get below its own limit "
            "(xla_gpu_memory_limit_slop_factor, per cent of the device): the FLOPs show the price"
        )


def of_flops(flops: Flops) -> Iterator[str]:
    """About what is computed."""
    over = flops.executed / flops.expected
    if over > TOLERANCE:
        yield (
            f"the program executes {over:.2f} times the FLOPs that model and remat policy account "
            "for: the compiler recomputes on its own account, most likely to save memory; take "
            "fewer rows at once, or a stronger config.model.remat"
        )
    elif over < 1 / TOLERANCE:
        yield (
            f"the program executes {over:.2f} of the FLOPs that model and remat policy account for"
        )


def of_traffic(rows: Sequence[Traffic], log: str) -> Iterator[str]:
    """About what is sent."""
    total = sum(row.bytes for row in rows)
    for row in rows:
        over = " x ".join(row.axes) or "all"
        if row.bytes < NOTABLE * total:
            continue
        if row.kind == "all-reduce" and "fsdp" in row.axes and row.bytes > 2 * row.least:
            yield (
                f"{row.bytes / GIB:.2f} GiB over {over} are all-reduced where a reduce-scatter "
                "would do at half the bytes; a TPU's compiler chooses so mostly where the group is "
                "the whole slice: prefer config.mesh.data or tensor of at least 2"
            )
        elif not row.least:
            yield f"{row.kind} over {over}: {row.bytes / GIB:.2f} GiB that no formula accounts for"
        elif row.bytes > ABOVE_MINIMUM * row.least:
            yield (
                f"{row.kind} over {over}: {row.bytes / row.least:.2f} times the minimum of "
                f"{row.least / GIB:.2f} GiB"
            )
    waiting = sum(row.synchronous for row in rows)
    if total and waiting > total / 2:
        yield (
            f"{waiting / total:.0%} of the bytes are in collectives without a start and a done in "
            "the program's text: count on the time without overlap rather than with it"
        )
    if INVOLUNTARY in log:
        yield f"the compiler warns of '{INVOLUNTARY}': an array is gathered whole on the way"


def of_kernel(layout: Layout) -> Iterator[str]:
    """About the attention kernel."""
    if layout.attention == "reference":
        yield (
            "attention is the reference, which forms the scores of all pairs of a row: no fused "
            "kernel was asked for, or none can do this"
        )
    if layout.attention == "cudnn":
        yield (
            "cuDNN attention is planned by the capability that the target states; a run asks the "
            "GPU that it finds"
        )
