"""Options for the compilers of TPU and GPU, a reason beside each; a plan compiles with the same.

A reason is one that the compiled program shows, or the maker's advice, and says which. What only an
environment variable can set is in `jaxlm.platforms`.
"""

from pathlib import Path
from typing import Any, NamedTuple

from jaxlib._jax import Device  # jax.Device is a variable to a type checker

from jaxlm import hardware


class Option(NamedTuple):
    """A setting, and why."""

    value: Any
    reason: str


_NO_RINGS = {
    "xla_jf_spmd_threshold_for_windowed_einsum_mib": Option(
        1_000_000,
        "The compiler turns large products with weights split over `tensor` into rings of "
        "permutes; in the program of lm_70b on v5e:16x16 those send 1.67 times the bytes of "
        "its reduce-scatters, on v6e:16x16 1.58 times.",
    ),
}

_SPARSE_CORE = _NO_RINGS | {
    "xla_tpu_enable_sparse_core_collective_offload_all_gather": Option(
        True,
        "The SparseCores gather weights while the TensorCore multiplies. In the program, gathers "
        "turn from synchronous to asynchronous, with products between start and end.",
    ),
    "xla_tpu_enable_sparse_core_collective_offload_2d_all_gather": Option(
        True,
        "The same where the devices of a group span two dimensions of the slice and none closes to "
        "a ring, as 16 of v5p:2x4x4: without it those gathers stay synchronous.",
    ),
    "xla_tpu_enable_sparse_core_collective_offload_3d_all_gather": Option(
        True, "The same over three dimensions. In Google's recipes for v7x, in MaxText."
    ),
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": Option(
        True,
        "Likewise for gradients. In the program a reduce-scatter takes the place of an all-reduce "
        "fused with a slice, which nothing overlaps and which may pad what it sends.",
    ),
    "xla_tpu_check_legacy_constraints_in_reduce_scatter_legalizer": Option(
        False,
        "The SparseCores scatter over a whole slice, too. In the program, where fsdp is all of it, "
        "a reduce-scatter replaces an all-reduce of whole gradients, twice the bytes.",
    ),
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce": Option(
        True, "Likewise for the sum over `data` at the end of a step."
    ),
}
"""v5p, v6e and v7x have SparseCores; v4's are not for programs of JAX, v5e has none. The program of
v5e has asynchronous gathers by itself."""

_CUDA = {
    "xla_gpu_memory_limit_slop_factor": Option(
        90,
        "Per cent of the memory above which XLA recomputes on its own, unasked and unannounced; 80 "
        "by default, but a run's allocator has 92.",
    ),
    "xla_gpu_experimental_use_collective_kernels": Option(
        "",
        "None of XLA's own collective kernels: of jaxlib 0.12.0, the one for a scalar all-reduce "
        "ends the process when it is compiled for exactly 64 Hopper or newer GPUs.",
    ),
}
"""What is not here: combining a layer's gathers into one
(xla_gpu_all_gather_combine_threshold_bytes, 1 GiB) leaves no product to hide it behind: it becomes
synchronous. Doubling the loop (xla_gpu_enable_while_loop_double_buffering) moved no gather."""

_AMPERE = _CUDA | {
    "xla_gpu_enable_latency_hiding_scheduler": Option(
        True,
        "Collectives start before and end after products. In the program of an A100 every one is "
        "synchronous without it; from Hopper on it is XLA's default, and the program is the same.",
    ),
}

OPTIONS: dict[str, dict[str, Option]] = {
    "v4": _NO_RINGS,
    "v5e": _NO_RINGS,
    "v5p": _SPARSE_CORE,
    "v6e": _SPARSE_CORE
    | {
        "xla_tpu_scoped_vmem_limit_kib": Option(
            98_304,
            "Of 128 MiB of fast memory, what a fusion may use: larger tiles of large products. "
            "Google's value for dense models on v6e, in MaxText.",
        )
    },
    "7x": _SPARSE_CORE
    | {
        "xla_tpu_scoped_vmem_limit_kib": Option(
            65_472,
            "As on v6e, of 64 MiB, the most that the compiler takes. Google's recipes for v7x in "
            "MaxText say 65,536, which it cuts down to this with a complaint.",
        )
    },
    "a100-40g": _AMPERE,
    "a100": _AMPERE,
    "h100": _CUDA,
    "h200": _CUDA,
    "b200": _CUDA,
}
"""By chip, as in `jaxlm.hardware.CHIPS`: name of XLA's, without dashes -> setting."""

_DETERMINISTIC = {
    "xla_gpu_exclude_nondeterministic_ops": Option(
        True,
        "Sums whose order is left to chance, as of scatters by atomics, get another form. Unlike "
        "xla_gpu_deterministic_ops it leaves the choice of kernels by measurement, kept as below.",
    ),
}
"""For GPUs, on demand; TPUs are without. With them XLA uses none of its own Triton kernels."""

_KEPT_CHOICES = "xla_gpu_per_fusion_autotune_cache_dir"
"""XLA's option for where the kernels that measurement chose are kept: the next compile takes the
same ones, whatever it would measure. Without it, each start may choose others."""


def options(device: Device, deterministic: Path | None = None) -> dict[str, Any]:
    """`compiler_options` for programs on such a device, real or compile-only; none for a CPU.

    `deterministic`: a GPU's programs give the same bits each time they run and each time they are
    compiled, by the choices of kernels kept in this directory.
    """
    chip = hardware.by_kind(device.device_kind)
    if chip is None:
        return {}
    settings = OPTIONS[chip.name]
    if deterministic is None or chip.platform != "cuda":
        return {name: o.value for name, o in settings.items()}
    values = {name: o.value for name, o in (settings | _DETERMINISTIC).items()}
    return {**values, _KEPT_CHOICES: str(deterministic)}
