"""Names of targets, and the devices to compile for that they stand for."""

import math
import os

import jax
import pytest

from jaxlm import hardware
from jaxlm.errors import EnvironmentProblem
from jaxlm.plan import gpus, target
from jaxlm.plan.target import parse
from jaxlm.schema import ConfigError


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """What a target sets for the compilers ends with the test."""
    for name in target.ENVIRONMENT:
        monkeypatch.setenv(name, os.environ.get(name, target.ENVIRONMENT[name]))


@pytest.mark.parametrize(
    ("text", "slices", "size", "name"),
    [
        ("v5e:4x8", 1, 32, "v5e:4x8"),
        ("v5p:2x2x2", 2, 16, "2 x v5p:2x2x2"),
        ("7x:4x4x4", 1, 128, "7x:4x4x4"),
        ("v6e:1x1", 1, 1, "v6e:1x1"),
        ("h100:32x8", 1, 256, "h100:32x8"),
        ("a100:1x2", 1, 2, "a100:1x2"),
        ("h100:4096x8", 1, 32_768, "h100:4096x8"),
        ("v5p:8x12x16", 1, 1536, "v5p:8x12x16"),
        *(
            (f"v6e:{shape}", 1, size, f"v6e:{shape}")
            for shape, size in (
                ("2x2", 4),
                ("2x4", 8),
                ("4x4", 16),
                ("8x8", 64),
                ("8x16", 128),
                ("16x16", 256),
            )
        ),
        *(
            (f"v4:{shape}", 1, size, f"v4:{shape}")
            for shape, size in (("1x1x1", 1), ("2x2x1", 4), ("2x2x4", 16), ("2x4x4", 32))
        ),
    ],
)
def test_a_name(text, slices, size, name):
    found = parse(text, slices)
    assert (found.size, str(found)) == (size, name)


@pytest.mark.parametrize(
    ("text", "slices", "complaint"),
    [
        ("v9:4x4", 1, "no chip 'v9'; known are v4, v5e, v5p"),
        ("h100", 1, "write a chip and a shape, as v5p:4x4x4"),
        ("h100:0x8", 1, "write a chip and a shape"),
        ("h100:4x8x", 1, "write a chip and a shape"),
        ("v5p-64", 1, "64 cores, 32 chips; write the chips along each axis, v5p:2x4x4"),
        ("v5e-32", 1, "32 chips; write the chips along each axis, v5e:4x8"),
        ("7x-512", 1, "512 chips; write the chips along each axis, 7x:8x8x8"),
        ("v5p-100", 1, "100 cores, 50 chips; write the chips along each axis, as v5p:4x4x4"),
        (
            "v5p-999999999998",
            1,
            "499999999999 chips; write the chips along each axis, as v5p:4x4x4",
        ),
        ("v5p:999999999999", 1, "3 dimensions, in chips; write it as v5p:4x4x4"),
        ("v5p:128", 1, "3 dimensions, in chips; write it as v5p:4x4x8"),
        ("v5p:8x8", 1, "a slice of v5p has 3 dimensions, in chips; write it as v5p:4x4x4"),
        ("v5e:2x2x2", 1, "a slice of v5e has 2 dimensions"),
        ("v5e:32x32", 1, "1024 chips, but the largest slice of v5e has 256"),
        ("v6e:4x32", 1, "there is no such slice of v6e; use one of 1x1, 2x2, 2x4, 4x4, 4x8, 8x8"),
        ("v5e:4x6", 1, "there is no such slice of v5e; use one of 1x1, 2x2, .* 8x16, 16x16$"),
        ("v5e:16x2", 1, "there is no such slice of v5e"),
        ("v5p:3x4x4", 1, "there is no such slice of v5p; use one of 1x1x1, 2x2x1, .* A <= B <= C$"),
        ("v5p:2x2x3", 1, "there is no such slice of v5p"),
        ("v4:6x6x6", 1, "there is no such slice of v4"),
        ("7x:8x4x4", 1, "there is no such slice of 7x"),
        ("v5p:8x8x128", 1, "8192 chips, but the largest slice of v5p has 6144"),
        ("v5p:16x16x24", 6, "36,864 devices, but at most 32,768 are planned for"),
        ("h100:4097x8", 1, "32,776 devices, but at most 32,768 are planned for; use fewer nodes"),
        ("v5p:2x2x2", 0, "in 0 slices: at least 1"),
        ("h100:8", 1, "write nodes x GPUs a node, as h100:4x8"),
        ("h100:1x6", 1, "6 GPUs a node, but a node of h100 has 8"),
        ("h100:1x16", 1, "16 GPUs a node, but a node of h100 has 8"),
        ("b200:2x4", 1, "2 nodes of 4 GPUs; several nodes are planned with all 8 of each"),
        ("h100:4x8", 2, "slices are of TPUs; write more nodes, as h100:8x8"),
    ],
)
def test_an_impossible_target_names_the_rule(text, slices, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse(text, slices)


@pytest.mark.parametrize(
    ("text", "wraps"),
    [
        ("v5p:4x4x8", (True, True, True)),
        ("v5p:2x4x4", (False, False, False)),
        ("7x:2x2x2", (False, False, False)),
        ("v5e:16x16", (True, True, False)),
        ("v6e:8x16", (False, True, False)),
        ("v5e:4x4", (False, False, False)),
    ],
)
def test_which_slices_are_tori(text, wraps):
    assert parse(text).wraps == wraps


@pytest.mark.parametrize("name", [*target.SLICES, *gpus.GPUS])
def test_devices_are_of_the_chip(name):
    """Of every chip: as many as named, of the kind that the table of chips knows."""
    pytest.importorskip("libtpu" if name in target.SLICES else "jax_plugins.xla_cuda13")
    if name in gpus.GPUS:
        text = f"{name}:2x8"
    else:
        text = f"{name}:{'x'.join(['4'] * target.SLICES[name].dims)}"
    found = parse(text)
    devices = found.devices()
    assert len(devices) == found.size == math.prod(found.shape) * found.chip.devices_per_chip
    assert hardware.by_kind(devices[0].device_kind) == found.chip
    hosts = len({device.process_index for device in devices})
    assert found.size // hosts == found.chip.devices_per_host
    if name in gpus.GPUS:
        capability = ".".join(map(str, found.chip.capability))
        assert {device.compute_capability for device in devices} == {capability}
        assert gpus.GPUS[name].memory_bytes >= found.chip.memory_bytes
    assert jax.devices()[0].platform == "cpu"


def test_slices_are_told_apart():
    pytest.importorskip("libtpu")
    devices = parse("v5e:2x2", 3).devices()
    assert [device.slice_index for device in devices] == [0] * 4 + [1] * 4 + [2] * 4


def test_one_chip():
    pytest.importorskip("libtpu")
    assert len(parse("v5p:1x1x1").devices()) == 1


def test_without_the_compiler_it_says_what_to_install():
    with pytest.raises(EnvironmentProblem, match=r"pip install 'jaxlm\[plan\]'") as caught:
        target.need("no_such_package.no_such_plugin", "GPU")
    assert caught.value.exit_code == 78


def test_the_compilers_say_nothing(capfd):
    pytest.importorskip("libtpu")
    parse("v6e:2x2").devices()
    assert capfd.readouterr() == ("", "")
