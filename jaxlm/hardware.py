"""Chips by name: what a device can hold, compute and move, from the makers' data sheets.

A device is what JAX calls one: a chip, or one of the two cores of a TPU v7x chip.
"""

from dataclasses import dataclass
from typing import Literal

GIB = 2**30

GPU_MEMORY_SHARE = 0.92
"""Of a GPU's memory, what XLA's allocator may take: `XLA_CLIENT_MEM_FRACTION` of a run, in place of
XLA's own 0.75. The rest is for CUDA, cuDNN and NCCL."""


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
    host_bandwidth: float
    """To that memory."""
    capability: tuple[int, int] = (0, 0)
    """Compute capability of a GPU."""
    devices_per_chip: int = 1
    """Prices and targets count chips."""


def _tpu(
    name: str,
    kinds: tuple[str, ...],
    *,
    tflops: float,
    memory_gib: float,
    memory: float,
    ici: float,
    dcn_gbits: float,
    host_gb: float,
    devices_per_host: int = 4,
    devices_per_chip: int = 1,
) -> Chip:
    """Rates of a chip, from Google's page of the version; `memory_gib` of a device.

    `memory_gib` is what libtpu 0.0.50 calls the available HBM when it refuses a program. A host is
    a virtual machine of the multi-host slices: 4 chips. Google publishes no rate to the host: 16
    GB/s a device, half of a PCIe 4.0 x16 link, is an assumption.
    """
    n = devices_per_chip
    return Chip(
        name=name,
        platform="tpu",
        kinds=kinds,
        bf16_tflops=tflops / n,
        memory_bytes=int(memory_gib * GIB),
        memory_bandwidth=memory * 1e9 / n,
        link_bandwidth=ici * 1e9 / n,
        network_bandwidth=dcn_gbits * 1e9 / 8 / n,
        devices_per_host=devices_per_host,
        host_bytes=int(host_gb * 1e9 / devices_per_host),
        host_bandwidth=16e9,
        devices_per_chip=n,
    )


def _gpu(
    name: str,
    kinds: tuple[str, ...],
    *,
    tflops: float,
    memory_bytes: int,
    memory: float,
    nvlink: float,
    network_gbits: float,
    host_gb: float,
    pcie: float,
    capability: tuple[int, int],
) -> Chip:
    """From NVIDIA's data sheets of the SXM module and of its DGX machine of 8.

    `memory_bytes` is what CUDA reports as the total, as OpenXLA's target files have it.
    """
    return Chip(
        name=name,
        platform="cuda",
        kinds=kinds,
        bf16_tflops=tflops,
        memory_bytes=int(memory_bytes * GPU_MEMORY_SHARE),
        memory_bandwidth=memory * 1e9,
        link_bandwidth=nvlink * 1e9,
        network_bandwidth=network_gbits * 1e9 / 8,
        devices_per_host=8,
        host_bytes=int(host_gb * 1e9 / 8),
        host_bandwidth=pcie * 1e9,
        capability=capability,
    )


# ICI and NVLink are published as both directions together, or in Gbit/s: here one direction.
_CHIPS = (
    # docs.cloud.google.com/tpu/docs/v4
    _tpu(
        "v4", ("TPU v4",), tflops=275, memory_gib=30.75,
        memory=1228, ici=300, dcn_gbits=50, host_gb=400,
    ),
    # docs.cloud.google.com/tpu/docs/v5e: 2 x 100 Gbit/s a host of 8 chips; ct5lp-hightpu-4t
    _tpu(
        "v5e", ("TPU v5 lite", "TPU v5e"), tflops=197, memory_gib=15.75,
        memory=819, ici=200, dcn_gbits=25, host_gb=192,
    ),
    # docs.cloud.google.com/tpu/docs/v5p: 1,200 GB/s in both directions; ct5p-hightpu-4t
    _tpu(
        "v5p", ("TPU v5", "TPU v5p"), tflops=459, memory_gib=95.73,
        memory=2765, ici=600, dcn_gbits=50, host_gb=448,
    ),
    # docs.cloud.google.com/tpu/docs/v6e: 4 x 200 Gbit/s a host of 8 chips; ct6e-standard-4t
    _tpu(
        "v6e", ("TPU v6 lite", "TPU v6e"), tflops=918, memory_gib=31.24,
        memory=1638, ici=400, dcn_gbits=100, host_gb=720,
    ),
    # docs.cloud.google.com/tpu/docs/tpu7x: 1,200 GB/s in both directions; tpu7x-standard-4t
    _tpu(
        "7x", ("TPU7x", "TPU v7x"), tflops=2307, memory_gib=94.74,
        memory=7380, ici=600, dcn_gbits=100, host_gb=960, devices_per_host=8, devices_per_chip=2,
    ),
    # NVIDIA A100 data sheet; DGX A100: 8 x 200 Gbit/s
    _gpu(
        "a100-40g", ("NVIDIA A100-SXM4-40GB",), tflops=312, memory_bytes=42_331_013_120,
        memory=1555, nvlink=300, network_gbits=200, host_gb=1000, pcie=32, capability=(8, 0),
    ),
    _gpu(
        "a100", ("NVIDIA A100-SXM4-80GB",), tflops=312, memory_bytes=85_100_068_864,
        memory=2039, nvlink=300, network_gbits=200, host_gb=2000, pcie=32, capability=(8, 0),
    ),
    # NVIDIA H100 and H200 data sheets; DGX H100 and H200: 8 x 400 Gbit/s
    _gpu(
        "h100", ("NVIDIA H100 80GB HBM3",), tflops=989, memory_bytes=84_942_979_072,
        memory=3350, nvlink=450, network_gbits=400, host_gb=2000, pcie=64, capability=(9, 0),
    ),
    _gpu(
        "h200", ("NVIDIA H200", "NVIDIA H200 141GB HBM3e"), tflops=989,
        memory_bytes=151_397_597_184, memory=4800,
        nvlink=450, network_gbits=400, host_gb=2000, pcie=64, capability=(9, 0),
    ),
    # NVIDIA DGX B200 data sheet: 36 PFLOPS of sparse FP16 and BF16 in 8, 64 TB/s, 14.4 TB/s
    _gpu(
        "b200", ("NVIDIA B200",), tflops=2250, memory_bytes=191_514_411_008,
        memory=8000, nvlink=900, network_gbits=400, host_gb=2000, pcie=64, capability=(10, 0),
    ),
)  # fmt: skip

CHIPS: dict[str, Chip] = {chip.name: chip for chip in _CHIPS}


def by_kind(kind: str) -> Chip | None:
    """The chip of a JAX device; None for a CPU or an unknown one."""
    return next((chip for chip in CHIPS.values() if kind in chip.kinds), None)
