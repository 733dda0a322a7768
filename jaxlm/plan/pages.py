"""The table of plans for people: `docs/plans.md`, and the lines in the headers of the configs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlm.hardware import GIB

COMMAND = "make plans"

MARK = "Tokens, and days and cost as planned (docs/plans.md):\n"
"""In a config's header: what follows, up to the end of the header, is written by `COMMAND`."""

UNPLANNED = f"  not planned yet: {COMMAND}\n"

INTRODUCTION = """\
# Plans

What the compilers of TPU and GPU make of the shipped configs, on every target that they name: the
step of `jaxlm train`, compiled with its options, for devices that were not there. Written by
`{command}` on {dates}, with {versions}; the same figures are in
`plans.json`. `jaxlm plan --config=configs/NAME.py --target=TARGET` gives a row in full, and
[planning.md](planning.md) says what each figure means.

Times and costs are arithmetic, not measurements: the first is of a step in which all overlaps and
every part runs at its published rate, the second of one in which nothing overlaps. MFU is an upper
bound; beside it, in parentheses, with attention counted over all pairs of tokens, as others publish
it, instead of the causal half. Costs are on demand and spot, in the prices of
`jaxlm/plan/prices.toml`. Bytes are those that a device sends in a step.
"""


def page(by_config: Mapping[Path, Sequence[dict[str, Any]]], missing: Sequence[str] = ()) -> str:
    """`docs/plans.md` of the rows of each config; `missing`: names of those not made yet."""
    rows = [row for own in by_config.values() for row in own]
    if not rows:
        return f"# Plans\n\nNot made yet: `{COMMAND}`.\n"
    dates = sorted({row["date"] for row in rows})
    dates = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions = sorted({f"{k} {v}" for row in rows for k, v in row["plan"]["versions"].items()})
    text = INTRODUCTION.format(command=COMMAND, dates=dates, versions=", ".join(versions))
    if missing:
        text += f"\nNot made yet: {', '.join(missing)}.\n"
    for path, own in by_config.items():
        if own:
            plans = [row["plan"] for row in own]
            text += f"\n## {path.stem}\n\n" + "\n".join("\n".join(t) + "\n" for t in _tables(plans))
    return text


def with_header(source: str, rows: Sequence[dict[str, Any]]) -> str:
    """A config's source with the lines of its plans in its header."""
    before, mark, rest = source.partition(MARK)
    if not mark:
        return source
    _, quotes, after = rest.partition('"""')
    lines = [_header_line(row["plan"]) for row in rows]
    return before + mark + ("".join(lines) or UNPLANNED) + quotes + after


def _header_line(plan: dict[str, Any]) -> str:
    run = plan["run"]
    if run is None:
        return f"  {plan['target']:<11} does not fit\n"
    demand, spot = (_dollars(plan, kind) for kind in ("on_demand", "spot"))
    return (
        f"  {plan['target']:<11} {run['tokens'] / 1e9:,.0f}B: {run['days']:.1f} to "
        f"{run['days_serial']:.1f} days, {demand}, spot {spot}\n"
    )


# ---- tables --------------------------------------------------------------------------------------


def _tables(plans: Sequence[dict[str, Any]]) -> Iterator[Iterable[str]]:
    yield _table(
        ("target", "devices", "data x fsdp x tensor", "rows", "microbatches", "remat", "attention",
         "program"),
        (_layout(p) for p in plans),
    )  # fmt: skip
    yield _table(
        ("GiB a device", "parameters", "optimizer", "batch", "gradients, temporaries", "needed",
         "of", "free", "host"),
        (_memory(p) for p in plans),
    )  # fmt: skip
    yield _table(
        ("target", "FLOPs", "executed / model", "expected", "bound", "step, s", "MFU", "tokens/s",
         "days", "on demand", "spot", "compiled in"),
        (_time(p) for p in plans if p["run"]),
    )  # fmt: skip
    yield _table(
        ("target", "collective", "over", "times", "GiB", "minimum", "synchronous"),
        (row for p in plans for row in _traffic(p)),
    )
    notes = [f"- {p['target']}: {note}" for p in plans for note in p["notes"]]
    if notes:
        yield notes


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _layout(plan: dict[str, Any]) -> tuple[str, ...]:
    layout = plan["layout"]
    offload = "".join(f", {name} in host memory" for name in layout["offload"])
    return (
        plan["target"],
        str(plan["devices"]),
        " x ".join(map(str, layout["mesh"].values())),
        str(layout["rows_per_device"]),
        str(layout["microbatches"]),
        layout["remat"] + offload,
        layout["attention"],
        plan["digest"][:12],
    )


def _memory(plan: dict[str, Any]) -> tuple[str, ...]:
    held, fit = plan["memory"], plan["fit"]
    sizes = (held[k] for k in ("parameters", "optimizer", "batch", "rest"))
    free = f"{fit['headroom']:.0%}" if fit["fits"] else "**does not fit**"
    return (
        plan["target"],
        *(_gib(size) for size in sizes),
        _gib(fit["peak"]),
        _gib(fit["capacity"]),
        free,
        _gib(held["host"]),
    )


def _time(plan: dict[str, Any]) -> tuple[str, ...]:
    run, flops, bound = plan["run"], plan["flops"], plan["roofline"]
    return (
        plan["target"],
        f"{flops['executed']:.3g}",
        f"{flops['executed'] / flops['model']:.3f}",
        f"{flops['expected'] / flops['model']:.3f}",
        bound["bound"],
        f"{run['step_s']:.2f} to {run['step_serial_s']:.2f}",
        f"{run['mfu']:.0%} ({run['mfu_all_pairs']:.0%})",
        f"{run['tokens_per_s']:,.0f}",
        f"{run['days']:.1f} to {run['days_serial']:.1f}",
        _dollars(plan, "on_demand"),
        _dollars(plan, "spot"),
        f"{plan['compile_s']:.0f} s",
    )


def _traffic(plan: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in plan["traffic"]:
        if max(row["bytes"], row["least"]) < GIB / 1000:
            continue  # scalars and ids: the JSON has them
        share = row["synchronous"] / row["bytes"] if row["bytes"] else 0.0
        axes = ", ".join(row["axes"])
        sizes = f"{row['bytes'] / GIB:.2f}", f"{row['least'] / GIB:.2f}"
        yield plan["target"], row["kind"], axes, f"{row['count']:,}", *sizes, f"{share:.0%}"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}" if size else "0"


def _dollars(plan: dict[str, Any], kind: str) -> str:
    price = (plan["price"] or {}).get(kind)
    if price is None:
        return "unknown"
    low, high = (plan["run"][key] * price for key in ("chip_hours", "chip_hours_serial"))
    return f"${low:,.0f} to {high:,.0f}"
