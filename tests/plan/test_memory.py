"""Who holds the memory: exact for what has a sharding, the compiler's figure for the rest."""

from unittest import mock

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm.plan import memory
from jaxlm.plan.memory import Fit, Memory, Refused
from jaxlm.state import TrainState
from tests import tiny

GIB = 2**30

REFUSAL = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
    "required for HLO temporaries (112.77G) exceeds available HBM (15.75G). HLO module: jit_step."
)

LOG = """\
E1130 19:09:21.983435   19386 deepsea_compiler_base.cc:3540] XLA:TPU compile permanent error. \
Ran out of memory in memory space hbm. Used 112.77G of 15.75G hbm. HLO module: jit_step. M

Memory Space: default (color=0)
Total bytes: 121088000000 (112.77GiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
   45.11GiB( 40%);   45.11GiB;            0;                1; f32[110000,110000]
   90.22GiB( 80%);   45.11GiB;            0;                1; f32[110000,110000]
  112.77GiB(100%);   22.55GiB;            0;                1; bf16[110000,110000]
  112.77GiB(100%);      512B;            0;                2; f32[128], s32[128]
"""


def shaped(
    shape: tuple[int, ...], dtype: type, kind: str, *spec: str | None
) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(tiny.mesh((2, 2, 2)), P(*spec), memory_kind=kind)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def state(moments: str = "device") -> TrainState:
    """12 KiB of float32 parameters over 4 of 8 devices, and moments of the same."""
    params = {"w": shaped((64, 48), jnp.float32, "device", "fsdp", "tensor")}
    moved = {"w": shaped((64, 48), jnp.float32, moments, "fsdp", "tensor")}
    scalar = shaped((), jnp.int32, "device")
    return TrainState(scalar, shaped((2,), jnp.uint32, "device"), params, (moved, moved))  # pyright: ignore[reportArgumentType]


def test_parts_of_a_device():
    """64 x 48 over fsdp and tensor, 32 x 24 each; without a sharding, all of it."""
    tree = {
        "w": shaped((64, 48), jnp.bfloat16, "device", "fsdp", "tensor"),
        "kept": shaped((64, 48), jnp.float32, "pinned_host", None, "tensor"),
        "whole": jax.ShapeDtypeStruct((10,), jnp.int32),
    }
    assert memory.parts(tree) == (32 * 24 * 2 + 10 * 4, 64 * 24 * 4)


def test_holders_add_up_to_the_peak():
    found = memory.holders(Memory(20_000, 0), state(), jnp.zeros((4, 8), jnp.int32))
    assert found == (3_072, 6_144, 128, 20_000 - 3_072 - 6_144 - 128, 0)


@pytest.mark.parametrize("moments", ["pinned_host", "device"])
def test_what_waits_on_the_host_is_not_the_devices(moments):
    """Whether the shardings say so or the compiler alone."""
    compiled = Memory(20_000, host=7_000, host_arguments=6_144)
    found = memory.holders(compiled, state(moments), ())
    assert (found.parameters, found.optimizer, found.host) == (3_072, 0, 7_000)
    assert found.rest == 20_000 - 3_072


@pytest.mark.parametrize(
    ("text", "peak"),
    [
        (REFUSAL, 112.77 * GIB),
        ("the total memory required 19.25G exceeds available HBM", 19.25 * GIB),
        ("Used 512.50M of 15.75G hbm. Exceeded hbm capacity by 97.02G.", 512.5 * 2**20),
    ],
)
def test_a_refusal_names_what_it_would_have_taken(text, peak):
    found = memory.of_refusal(text, state())
    assert found == (int(peak), 0, 0)


def test_a_refusal_without_a_figure_is_not_taken_for_one():
    with pytest.raises(Refused, match="the device is on fire"):
        memory.of_refusal("RESOURCE_EXHAUSTED: the device is on fire", state())


def test_the_largest_are_those_of_the_compilers_list():
    found = memory.largest(LOG, count=2)
    assert found == [
        (int(45.11 * GIB), "f32[110000,110000]"),
        (int(22.55 * GIB), "bf16[110000,110000]"),
    ]
    assert memory.largest(LOG)[-1] == (512, "f32[128], s32[128]")
    assert memory.largest("") == []


def test_the_verdict():
    assert Fit(90, 100, 0, 10).fits and Fit(90, 100, 0, 10).headroom == pytest.approx(0.1)
    assert not Fit(101, 100, 0, 10).fits and Fit(125, 100, 0, 10).headroom == -0.25
    assert not Fit(90, 100, 11, 10).fits


@pytest.mark.parametrize(
    ("platform", "compilers_peak", "host_temporaries", "peak"),
    [
        ("cpu", 1_200, 0, 1_400),  # its own leaves temporaries out
        ("gpu", 1_350, 0, 1_150),
        ("tpu", 1_350, 50, 1_150),
        ("gpu", 9_000, 8_800, 1_400),  # those of the host instead of the device's
    ],
)
def test_the_figure_that_counts(platform, compilers_peak, host_temporaries, peak):
    """Of 1,000 bytes of arguments, 300 of temporaries and 100 of results on the device."""
    stats = mock.Mock(
        argument_size_in_bytes=1_000,
        temp_size_in_bytes=300,
        output_size_in_bytes=600,
        alias_size_in_bytes=500,
        peak_memory_in_bytes=compilers_peak,
        host_argument_size_in_bytes=200,
        host_temp_size_in_bytes=host_temporaries,
    )
    found = memory.of_compiled(mock.Mock(memory_analysis=lambda: stats), platform)
    assert found == (peak, 200 + host_temporaries, 200)


def test_cpus_share_the_machines_memory():
    devices = jax.devices()
    assert memory.attached_capacity(devices) == memory.host_bytes() // len(devices) > 0
