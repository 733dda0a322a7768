"""A plan of a run, put together from its compiled step and from data sheets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax

from jaxlm.config import Config
from jaxlm.plan import alive, memory, minimum, notes, prices, program, remedy
from jaxlm.plan.collectives import Collective
from jaxlm.plan.figures import Flops, Layout, Plan, Run, Traffic
from jaxlm.plan.memory import Fit
from jaxlm.plan.minimum import Move
from jaxlm.plan.preemption import DAY, HOUR, RESTART_MINUTES, WRITE_GBS, Preemption
from jaxlm.plan.program import Program
from jaxlm.plan.roofline import Roofline, roofline
from jaxlm.plan.target import Target
from jaxlm.plan.walk import Counts

LARGEST = 8
"""Buffers that a plan names where the memory does not suffice."""


class Options(NamedTuple):
    """What a plan is told besides config and target."""

    name: str = ""
    """Of the config, for the report."""
    price: float | None = None
    spot_price: float | None = None
    preemptions_per_day: float | None = None
    """Of the whole job."""
    write_gbs: float | None = None
    """Gigabytes a second that each host writes to where checkpoints lie; None: `WRITE_GBS`."""
    restart_minutes: float | None = None
    """From a preemption to the next step; None: `RESTART_MINUTES`."""


DEFAULTS = Options()


def plan(cfg: Config, target: Target, options: Options = DEFAULTS) -> Plan:
    """Compiles the step of a config for a target, and says what it takes.

    Raises `ConfigError` where they do not go together, `EnvironmentProblem` where a compiler is
    missing.
    """
    return of_program(cfg, target, program.compile(cfg, target), options)


def of_program(
    cfg: Config,
    target: Target,
    compiled: Program,
    options: Options = DEFAULTS,
    capacity: int | None = None,
) -> Plan:
    """The plan of a step that has been compiled, or refused.

    `capacity`: bytes that a program may fill of a device that is attached; by default the chip's.
    """
    chip, size, counts = target.chip, compiled.memory, compiled.counts
    fit = Fit(size.peak, capacity or chip.memory_bytes, size.host, chip.host_bytes)
    planned = replace(
        of_step(cfg, compiled, fit, str(target), target.chips, target.size),
        config=options.name,
        price=prices.of(chip.name, options.price, options.spot_price),
    )
    told = [*planned.notes, *notes.of_memory(fit.headroom)]
    if chip.platform == "cuda":
        told += notes.of_recomputing(compiled.log)
        if capacity is None:
            told.append(notes.GPU_SHARE)
    told += notes.of_kernel(planned.layout)
    if counts is None or planned.flops is None:
        return replace(planned, notes=tuple(told))
    least = minimum.expected(cfg, compiled.mesh_shape, compiled.attention)
    rows = _traffic(counts.collectives, least.wire())
    bound = roofline(
        target,
        compiled.mesh_shape,
        flops=counts.flops,
        float32_flops=_float32(counts, cfg.model.compute_dtype),
        hbm_bytes=counts.hbm_bytes,
        moves=[Move(c.name, c.kind, c.axes, c.bytes, c.between_slices) for c in counts.collectives],
        host_bytes=counts.host_bytes,
    )
    told += [*notes.of_flops(planned.flops), *notes.of_traffic(rows, compiled.log)]
    return replace(
        planned,
        traffic=rows,
        roofline=bound,
        run=_run(cfg, target, compiled, planned.flops, bound),
        preemption=_preemption(cfg, target, compiled, bound, options),
        notes=tuple(told),
    )


def of_step(
    cfg: Config, compiled: Program, fit: Fit, target: str, chips: int, devices: int
) -> Plan:
    """What is known whatever the chip can do: layout, memory, FLOPs, and what would fit."""
    flops, over, layout = None, fit.peak > fit.capacity, _layout(cfg, compiled)
    if compiled.counts is not None:
        least = minimum.expected(cfg, compiled.mesh_shape, compiled.attention)
        executed = compiled.counts.flops
        flops = Flops(least.model_flops, least.model_flops_all_pairs, least.flops, executed)
    changes = remedy.remedies(cfg, compiled.mesh_shape, fit.peak, fit.capacity) if over else []
    return Plan(
        target=target,
        chips=chips,
        devices=devices,
        layout=layout,
        memory=memory.holders(compiled.memory, compiled.state, compiled.batch),
        fit=fit,
        alive=_alive(compiled) if over else (),
        remedies=tuple(changes),
        flops=flops,
        notes=tuple(notes.of_host(fit, layout)),
        digest=compiled.digest,
        compile_s=compiled.compile_s,
        versions=compiled.versions,
    )


def _traffic(
    collectives: Sequence[Collective], least: Mapping[tuple[str, tuple[str, ...]], float]
) -> tuple[Traffic, ...]:
    """What is sent by kind and axes, beside the minimum; the most first."""
    by_kind: dict[tuple[str, tuple[str, ...]], list[Collective]] = {key: [] for key in least}
    for c in collectives:
        by_kind.setdefault((c.kind, c.axes), []).append(c)
    rows = (
        Traffic(
            kind=kind,
            axes=axes,
            count=sum(c.count for c in found),
            bytes=sum(c.bytes for c in found),
            least=least.get((kind, axes), 0.0),
            synchronous=sum(c.bytes for c in found if not c.asynchronous),
        )
        for (kind, axes), found in by_kind.items()
    )
    return tuple(sorted(rows, key=lambda row: -max(row.bytes, row.least)))


def _float32(counts: Counts, compute_dtype: str) -> float:
    """FLOPs of float32 products; kernels compute in the type of the model."""
    products = sum(p.flops * times for p, times in counts.products if p.dtype == "f32")
    kernels = sum(k.flops * k.count for k in counts.kernels) * (compute_dtype == "float32")
    return products + kernels


def _layout(cfg: Config, compiled: Program) -> Layout:
    """How a compiled step is spread over its devices."""
    on_host = {"optimizer": cfg.optim.offload, "activations": cfg.model.offload_activations}
    shards = compiled.mesh_shape["data"] * compiled.mesh_shape["fsdp"]
    return Layout(
        mesh=compiled.mesh_shape,
        batch_size=cfg.train.batch_size,
        seq_len=cfg.data.seq_len,
        microbatches=compiled.microbatches,
        rows_per_device=cfg.train.batch_size // shards // compiled.microbatches,
        remat=cfg.model.remat,
        offload=tuple(name for name, is_there in on_host.items() if is_there),
        vocab_blocks=cfg.loss.vocab_blocks,
        attention=compiled.attention,
    )


def _run(cfg: Config, target: Target, compiled: Program, flops: Flops, bound: Roofline) -> Run:
    peak = bound.step_s * target.chip.bf16_tflops * 1e12
    steps = cfg.end // cfg.train.batch_size
    seconds, serial = steps * bound.step_s, steps * bound.serial_s
    return Run(
        params=sum(math.prod(p.shape) for p in jax.tree.leaves(compiled.state.params)),
        tokens=cfg.end * cfg.data.seq_len,
        steps=steps,
        step_s=bound.step_s,
        step_serial_s=bound.serial_s,
        tokens_per_s=cfg.batch_tokens / bound.step_s,
        mfu=flops.model / peak,
        mfu_all_pairs=flops.model_all_pairs / peak,
        days=seconds / DAY,
        days_serial=serial / DAY,
        chip_hours=seconds / HOUR * target.chips,
        chip_hours_serial=serial / HOUR * target.chips,
    )


def _alive(compiled: Program) -> tuple[tuple[int, str], ...]:
    """The largest at the peak: of the text, or of the compiler's list where it refused."""
    if not compiled.text:
        return tuple(memory.largest(f"{compiled.refusal}\n{compiled.log}", LARGEST))
    moment = alive.peak(compiled.text)
    return tuple((b.bytes, f"{b.shape} {b.op_name}") for b in moment.buffers[:LARGEST])


def _preemption(
    cfg: Config, target: Target, compiled: Program, bound: Roofline, options: Options
) -> Preemption | None:
    """None without a rate to reckon with."""
    if options.preemptions_per_day is None:
        return None
    chip, every = target.chip, cfg.checkpoint
    hosts = -(-target.size // chip.devices_per_host)
    intervals = []
    if every.every is not None:
        intervals.append(cfg.rows("checkpoint.every") / cfg.train.batch_size * bound.step_s)
    if every.every_minutes is not None:
        intervals.append(60 * every.every_minutes)
    run_s = cfg.end / cfg.train.batch_size * bound.step_s
    leaves = jax.tree.leaves((compiled.state.params, compiled.state.opt_state))
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)
    write_gbs = WRITE_GBS if options.write_gbs is None else options.write_gbs
    restart = RESTART_MINUTES if options.restart_minutes is None else options.restart_minutes
    write_bandwidth = hosts * write_gbs * 1e9
    return Preemption(
        per_day=options.preemptions_per_day,
        checkpoint_bytes=size,
        write_bandwidth=write_bandwidth,
        stall_s=size / (target.size * chip.host_bandwidth),
        commit_s=size / write_bandwidth,
        restart_s=60 * restart,
        interval_s=min(intervals, default=run_s),
    )
