"""What XLA's GPU compiler must know of a GPU that is not there: its own description, as text.

The numbers are those of the SXM modules as OpenXLA's own target files give them
(`xla/backends/gpu/target_config/specs`); the text is a `GpuTargetConfigProto`.
"""

from typing import NamedTuple

from jaxlm.hardware import Chip


class Gpu(NamedTuple):
    """What the compiler must know of one GPU, besides what `jaxlm.hardware.CHIPS` has."""

    features: str
    """Which instructions beyond the capability's own there are: sm_90a, sm_100a."""
    cores: int
    """Streaming multiprocessors."""
    memory_bandwidth: int
    memory_bytes: int
    l2_bytes: int
    clock_ghz: float
    fpus: int = 128
    """FP32 units a multiprocessor."""
    shared_bytes: int = 233_472
    """Shared memory of a multiprocessor."""
    shared_optin: int = 232_448
    """The most of it that one block can have."""


_H100 = Gpu(
    features="ACCELERATED_FEATURES",
    cores=132,
    memory_bandwidth=3_352_320_000_000,
    memory_bytes=84_942_979_072,
    l2_bytes=52_428_800,
    clock_ghz=1.98,
)

GPUS: dict[str, Gpu] = {
    "a100": Gpu(
        features="NONE",
        cores=108,
        memory_bandwidth=2_039_040_000_000,
        memory_bytes=85_100_068_864,
        l2_bytes=41_943_040,
        clock_ghz=1.41,
        fpus=64,
        shared_bytes=167_936,
        shared_optin=166_912,
    ),
    "h100": _H100,
    "h200": _H100._replace(
        memory_bandwidth=4_800_000_000_000,
        memory_bytes=151_397_597_184,
    ),
    "b200": Gpu(
        features="ACCELERATED_FEATURES",
        cores=148,
        memory_bandwidth=7_672_320_000_000,
        memory_bytes=191_514_411_008,
        l2_bytes=132_644_864,
        clock_ghz=1.965,
    ),
}
"""By name, as in `jaxlm.hardware.CHIPS`."""

CUDNN = (9, 12)
"""The least version that JAX's plugin takes; cuDNN itself need not be there to compile for it."""


def target_config(chip: Chip) -> str:
    """The text that describes a GPU to the compiler."""
    gpu, (major, minor), (capability, _) = GPUS[chip.name], CUDNN, chip.capability
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {gpu.shared_bytes}
  shared_memory_per_block_optin: {gpu.shared_optin}
  threads_per_core_limit: 2048
  core_count: {gpu.cores}
  fpus_per_core: {gpu.fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  memory_bandwidth: {gpu.memory_bandwidth}
  l2_cache_size: {gpu.l2_bytes}
  clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {gpu.memory_bytes}
  cuda_compute_capability {{ major: {capability} feature_extension: {gpu.features} }}
  device_interconnect_info {{ active_links: 18 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {major} minor: {minor} }}
device_description_str: "{chip.kinds[0]}"
"""
