"""`jaxlm train --dry-run`: the step compiled for the attached devices, and what it takes there."""

import dataclasses
from collections.abc import Sequence
from datetime import date
from typing import Any

import jax

from jaxlm import hardware
from jaxlm.config import Config
from jaxlm.data.corpus import open_corpus
from jaxlm.plan import lines, memory, minimum, program, report, walk
from jaxlm.plan.figures import Flops, Plan
from jaxlm.plan.memory import Fit
from jaxlm.plan.program import Program
from jaxlm.plan.target import SLICES, Target

DOES_NOT_FIT = 2
"""Exit code: the config is wrong for these devices."""


def dry_run(cfg: Config, name: str) -> int:
    """Opens the data and compiles the step, as a run would; prints the plan, and writes nothing.

    Raises `UserError` for what a run would refuse, too. Returns 0 if the run fits, 2 if not.
    """
    open_corpus(cfg)
    devices = jax.devices()
    planned = plan(cfg, devices, program.compile(cfg, devices))
    planned = dataclasses.replace(planned, config=name)
    if jax.process_index() == 0:
        for line in lines.lines(planned, date.today()):
            print(line)
    return 0 if planned.fits else DOES_NOT_FIT


def plan(cfg: Config, devices: Sequence[Any], compiled: Program) -> Plan:
    """The plan of a step that was compiled for these devices.

    Without a roofline where the table of chips does not know them, as it knows no CPU.
    """
    capacity = memory.attached_capacity(devices)
    target = target_of(devices)
    if target is not None:
        planned = report.of_program(cfg, target, compiled)
        fit = planned.fit._replace(capacity=capacity)
        return dataclasses.replace(planned, fit=fit)
    local = sum(device.process_index == devices[0].process_index for device in devices)
    kind, platform = devices[0].device_kind, devices[0].platform
    fit = Fit(compiled.memory.peak, capacity, compiled.memory.host, memory.host_bytes() // local)
    notes = [f"no roofline, days or cost: {kind!r} is not in the table of chips"]
    if platform == "cpu":
        notes.append("collectives are left out: the CPU's compiler makes others than TPU's, GPU's")
    return Plan(
        config="",
        target=f"{len(devices)} attached: {kind}",
        chips=len(devices),
        devices=len(devices),
        layout=report.layout_of(cfg, compiled),
        memory=memory.holders(compiled.memory, compiled.state, compiled.batch),
        fit=fit,
        alive=(),
        remedies=(),
        flops=_flops(cfg, compiled),
        traffic=(),
        roofline=None,
        run=None,
        price=None,
        preemption=None,
        notes=tuple(notes),
        digest=compiled.digest,
        compile_s=compiled.compile_s,
        versions=program.versions(platform),
    )


def target_of(devices: Sequence[Any]) -> Target | None:
    """The target that these devices are; None if they are of no known chip."""
    chip = hardware.by_kind(devices[0].device_kind)
    if chip is None:
        return None
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if chip.platform == "tpu":
        dims = SLICES[chip.name].dims
        shape = tuple(1 + max(device.coords[i] for device in devices) for i in range(dims))
        return Target(chip, shape, slices)
    nodes = len({device.process_index for device in devices}) if slices == 1 else slices
    return Target(chip, (nodes, len(devices) // nodes))


def _flops(cfg: Config, compiled: Program) -> Flops:
    counts = walk.count(compiled.text, compiled.mesh_shape)
    least = minimum.expected(cfg, compiled.mesh_shape, compiled.attention)
    return Flops(least.model_flops, least.model_flops_all_pairs, least.flops, counts.flops)
