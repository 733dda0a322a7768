"""`jaxlm train --dry-run`: the step compiled for the attached devices, and what it takes there."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import jax

from jaxlm import hardware, resume
from jaxlm.config import Config
from jaxlm.data import skips
from jaxlm.data.corpus import open_corpus
from jaxlm.plan import lines, memory, program, report
from jaxlm.plan.figures import DOES_NOT_FIT, Plan
from jaxlm.plan.memory import Fit
from jaxlm.plan.program import Program
from jaxlm.plan.target import SLICES, Target
from jaxlm.site import Workdir, check_could_write, fetch


def dry_run(cfg: Config, name: str, directory: Workdir) -> int:
    """Opens the data and compiles the step, as a run would; prints the plan, and writes nothing.

    Raises `UserError` for what a run in `directory` would refuse, too, before it reads checkpoints
    whole. Returns 0 if the run fits, 2 if not.
    """
    check_could_write(directory)
    fetch(directory)
    skips.load(directory)
    resume.check_resumes(cfg, directory, open_corpus(cfg))
    devices = jax.devices()
    planned = plan(cfg, devices, program.compile(cfg, devices))
    planned = replace(planned, config=name)
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
        return report.of_program(cfg, target, compiled, capacity=capacity)
    local = sum(device.process_index == devices[0].process_index for device in devices)
    kind = devices[0].device_kind
    fit = Fit(compiled.memory.peak, capacity, compiled.memory.host, memory.host_bytes() // local)
    notes = [f"no roofline, days or cost: {kind!r} is not in the table of chips"]
    if devices[0].platform == "cpu":
        notes.append("collectives are left out: the CPU's compiler makes others than TPU's, GPU's")
    name = f"{len(devices)} attached: {kind}"
    planned = report.of_step(cfg, compiled, fit, name, len(devices), len(devices))
    return replace(planned, notes=tuple(notes))


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
    processes = len({device.process_index for device in devices})
    # As `jaxlm.mesh` has it: where each process has one GPU, all of them are taken to share a node.
    nodes = processes if slices == 1 and processes < len(devices) else slices
    return Target(chip, (nodes, len(devices) // nodes))
