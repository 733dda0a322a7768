"""What XLA's GPU compiler must know of a GPU that is not there: its own description, as text.

The numbers are those of the SXM modules as OpenXLA's own target files give them
(`xla/backends/gpu/target_config/specs`); the text is a `GpuTargetConfigProto`.
"""

from typing import NamedTuple


class Gpu(NamedTuple):
    """Of one GPU."""

    description: str
    capability: int
    """Major compute capability; the minor one is 0 for all of these."""
    features: str
    """Which instructions beyond the capability's own there are: sm_90a, sm_100a."""
    cores: int
    """Streaming multiprocessors."""
    fpus: int
    """FP32 units a multiprocessor."""
    memory_bandwidth: int
    l2_bytes: int
    clock_ghz: float
    memory_bytes: int
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    shared_optin: int
    """The most of it that one block can have."""


GPUS: dict[str, Gpu] = {
    "a100": Gpu(
        description="NVIDIA A100-SXM4-80GB",
        capability=8,
        features="NONE",
        cores=108,
        fpus=64,
        memory_bandwidth=2_039_040_000_000,
        l2_bytes=41_943_040,
        clock_ghz=1.41,
        memory_bytes=85_100_068_864,
        shared_bytes=167_936,
        shared_optin=166_912,
    ),
    "h100": Gpu(
        description="NVIDIA H100 80GB HBM3",
        capability=9,
        features="ACCELERATED_FEATURES",
        cores=132,
        fpus=128,
        memory_bandwidth=3_352_320_000_000,
        l2_bytes=52_428_800,
        clock_ghz=1.98,
        memory_bytes=84_942_979_072,
        shared_bytes=233_472,
        shared_optin=232_448,
    ),
    "h200": Gpu(
        description="NVIDIA H200",
        capability=9,
        features="ACCELERATED_FEATURES",
        cores=132,
        fpus=128,
        memory_bandwidth=4_800_000_000_000,
        l2_bytes=52_428_800,
        clock_ghz=1.98,
        memory_bytes=151_397_597_184,
        shared_bytes=233_472,
        shared_optin=232_448,
    ),
    "b200": Gpu(
        description="NVIDIA B200",
        capability=10,
        features="ACCELERATED_FEATURES",
        cores=148,
        fpus=128,
        memory_bandwidth=7_672_320_000_000,
        l2_bytes=132_644_864,
        clock_ghz=1.965,
        memory_bytes=191_514_411_008,
        shared_bytes=233_472,
        shared_optin=232_448,
    ),
}
"""By name, as in `jaxlm.hardware.CHIPS`."""

CUDNN = (9, 12)
"""The least version that JAX's plugin takes; cuDNN itself need not be there to compile for it."""


def target_config(gpu: Gpu) -> str:
    """The text that describes a GPU to the compiler."""
    major, minor = CUDNN
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
  cuda_compute_capability {{ major: {gpu.capability} feature_extension: {gpu.features} }}
  device_interconnect_info {{ active_links: 18 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {major} minor: {minor} }}
device_description_str: "{gpu.description}"
"""
