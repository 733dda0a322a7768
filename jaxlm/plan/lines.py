"""A plan as text to read: one section a question."""

from collections.abc import Iterator
from datetime import date

from jaxlm.hardware import GIB
from jaxlm.plan import remedy
from jaxlm.plan.figures import Flops, Plan, Run, Traffic
from jaxlm.plan.roofline import Roofline


def lines(plan: Plan, today: date) -> Iterator[str]:
    """The whole report."""
    yield from _layout(plan)
    yield from _memory(plan)
    if plan.flops is not None:
        yield from _flops(plan.flops)
    if plan.traffic:
        yield from _traffic(plan.traffic)
    if plan.roofline is not None and plan.run is not None:
        yield from _roofline(plan.roofline, plan.run)
        yield from _run(plan, plan.run, today)
    if plan.preemption is not None:
        yield from _preemption(plan)
    if plan.notes:
        yield "\nnotes"
        for note in plan.notes:
            yield f"  - {note}"


def _layout(plan: Plan) -> Iterator[str]:
    layout = plan.layout
    mesh = " x ".join(f"{name} {size}" for name, size in layout.mesh.items())
    versions = ", ".join(f"{name} {version}" for name, version in plan.versions.items())
    yield f"plan of {plan.config or 'a config'} on {plan.target}"
    yield f"  devices      {plan.devices} on {plan.chips} chips: {mesh}"
    yield (
        f"  batch        {layout.batch_size:,} rows of {layout.seq_len:,}; "
        f"{layout.rows_per_device} rows a device at once, {layout.microbatches} times a step"
    )
    offload = f"; in host memory: {', '.join(layout.offload)}" if layout.offload else ""
    yield f"  remat        {layout.remat}{offload}"
    yield f"  attention    {layout.attention}"
    yield f"  compiled     in {plan.compile_s:.0f} s by {versions}; program {plan.digest[:12]}"


def _memory(plan: Plan) -> Iterator[str]:
    held, fit = plan.memory, plan.fit
    sizes = {
        "parameters": held.parameters,
        "optimizer": held.optimizer,
        "batch": held.batch,
        "gradients and temporaries": held.rest,
    }
    yield "\nmemory of a device, GiB"
    for name, size in sizes.items():
        yield f"  {name:<28}{size / GIB:>12.3f}"
    verdict = f"fits, {fit.headroom:.0%} free" if fit.peak <= fit.capacity else "DOES NOT FIT"
    yield f"  {'needed':<28}{fit.peak / GIB:>12.3f} of {fit.capacity / GIB:.2f}: {verdict}"
    if held.host:
        verdict = "fits" if fit.host <= fit.host_capacity else "DOES NOT FIT"
        capacity = f"{fit.host_capacity / GIB:.0f}, its share of the host: {verdict}"
        yield f"  {'in host memory':<28}{held.host / GIB:>12.3f} of {capacity}"
    if plan.alive:
        yield "  the largest at the worst moment:"
        for size, what in plan.alive:
            yield f"    {size / GIB:>9.3f}  {what}"
    if plan.remedies:
        yield from (f"  {line}" for line in remedy.lines(list(plan.remedies)))


def _flops(flops: Flops) -> Iterator[str]:
    yield "\nFLOPs of a device and step, 1e12"
    yield f"  {'model, attention halved':<28}{flops.model / 1e12:>12,.3f}"
    yield f"  {'model, attention whole':<28}{flops.model_all_pairs / 1e12:>12,.3f}"
    yield f"  {'expected to be executed':<28}{flops.expected / 1e12:>12,.3f}"
    yield (
        f"  {'executed':<28}{flops.executed / 1e12:>12,.3f}   {flops.ratio:.3f} of the model's, "
        f"{flops.executed / flops.expected:.3f} of the expected"
    )


def _traffic(rows: tuple[Traffic, ...]) -> Iterator[str]:
    yield "\ncollectives: MiB that a device sends in a step"
    yield f"  {'kind':<20}{'over':<20}{'calls':>7}{'MiB':>12}{'minimum':>12}{'ratio':>7}"
    for row in rows:
        over = " x ".join(row.axes) or "-"
        yield (
            f"  {row.kind:<20}{over:<20}{row.count:>7,}{row.bytes / 2**20:>12,.1f}"
            f"{row.least / 2**20:>12,.1f}{_ratio(row.bytes, row.least):>7}"
        )
    total, least = sum(r.bytes for r in rows), sum(r.least for r in rows)
    yield (
        f"  {'all':<40}{sum(r.count for r in rows):>7,}{total / 2**20:>12,.1f}"
        f"{least / 2**20:>12,.1f}{_ratio(total, least):>7}"
    )


def _roofline(roofline: Roofline, run: Run) -> Iterator[str]:
    yield "\nroofline: seconds of a step at the data sheets' rates"
    for name, seconds in roofline.parts.items():
        bound = "   <- the bound" if name == roofline.bound else ""
        yield f"  {name:<10}{seconds:>11.4g}{bound}"
    yield (
        f"  a step takes at least {roofline.step_s:.4g} s; {roofline.serial_s:.4g} s without "
        "overlap"
    )
    yield (
        f"  MFU at most {run.mfu:.1%} (attention halved; {run.mfu_all_pairs:.1%} with attention "
        f"whole), {run.tokens_per_s:,.0f} tokens/s"
    )


def _run(plan: Plan, run: Run, today: date) -> Iterator[str]:
    condition = "" if plan.fits else ", if it fitted"
    yield (
        f"\nrun{condition}: {run.params / 1e9:.2f}e9 parameters, {run.tokens / 1e9:,.2f}e9 tokens, "
        f"{run.steps:,} steps"
    )
    yield f"  {'':<22}{'perfect overlap':>18}{'no overlap':>18}"
    yield f"  {'days':<22}{run.days:>18,.2f}{run.days_serial:>18,.2f}"
    if plan.price is None:
        yield "  no price is known of this chip: give --price and --spot-price, in dollars an hour"
        return
    for name, price in (("on demand", plan.price.on_demand), ("spot", plan.price.spot)):
        if price is not None:
            label = f"$, {name} at {price:g}"
            low, high = run.chip_hours * price, run.chip_hours_serial * price
            yield f"  {label:<22}{low:>18,.0f}{high:>18,.0f}"
    yield f"  prices a chip and hour: {plan.price.note(today)}"


def _preemption(plan: Plan) -> Iterator[str]:
    p = plan.preemption
    assert p is not None
    yield f"\nspot machines, {p.per_day:g} preemptions of the job a day"
    yield (
        f"  a checkpoint of {p.checkpoint_bytes / GIB:,.1f} GiB: {p.stall_s:.1f} s of pause, "
        f"{p.commit_s:.0f} s at {p.write_bandwidth / 1e9:g} GB/s, of all hosts, until it counts; "
        f"{p.restart_s / 60:g} minutes to come back"
    )
    lost = p.lost * 60
    money = ""
    if plan.price is not None and plan.price.spot is not None:
        money = f", ${p.lost * plan.chips * plan.price.spot:,.2f} of the hour's price"
    yield (
        f"  saving every {p.interval_s / 60:,.0f} minutes loses {lost:.1f} minutes an hour{money}"
    )
    yield (
        f"  saving every {p.best_interval_s / 60:,.1f} minutes would lose least: "
        f"{p.best_lost * 60:.1f} minutes an hour"
    )
    if plan.run is None:
        return
    if p.lost == 1:
        yield "  the run gets nowhere: preemptions undo all that it does between checkpoints"
        return
    days = plan.run.days / (1 - p.lost)
    if plan.price is not None and plan.price.spot is not None:
        money = f" and ${days * 24 * plan.chips * plan.price.spot:,.0f}, spot,"
    else:
        money = ""
    yield f"  the run takes at least {days:,.2f} days{money} with them"


def _ratio(bytes_: float, least: float) -> str:
    return f"{bytes_ / least:.2f}" if least else "-"
