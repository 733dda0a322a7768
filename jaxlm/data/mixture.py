"""The mixture of a run over a corpus: which one it is, the plan for people, and when it is refused.

The plan itself is `plan`'s.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from jaxlm.config import DataConfig
from jaxlm.data.manifest import Manifest
from jaxlm.data.plan import WHERE, Mixture, Plan, Stage, Supply, TypePart, count

SHOWN = 0.0005
"""The least difference of a share that a table shows."""


def of_run(manifest: Manifest, data: DataConfig, stages: Sequence[Stage] = ()) -> Mixture:
    """The mixture of a run over a corpus; without stages, the one that the corpus was made for.

    `OrderError` if stages and corpus do not fit each other, `ManifestError` for `seq_len`.
    """
    chunks_per_row = manifest.chunks_per_row(data.seq_len)
    supplies = []
    for source, shards in sorted(manifest.sources("train").items()):
        rows, chunks = (
            sum(s.chunks // chunks_per_row for s in shards),
            sum(s.chunks for s in shards),
        )
        found = sum(s.tokens for s in shards) * rows * chunks_per_row / max(chunks, 1)
        weight = manifest.mixture.source_weights[source]
        supplies.append(Supply(source, shards[0].type, rows, found, weight))
    last = len(manifest.mixture.stages) - 1
    own = tuple(
        Stage(None if k == last else Fraction(str(stage.until)), stage.weights)
        for k, stage in enumerate(manifest.mixture.stages)
    )
    max_epochs = manifest.mixture.max_epochs if data.max_epochs is None else data.max_epochs
    return Mixture(
        supplies=tuple(supplies),
        stages=tuple(stages) or own,
        max_epochs=max_epochs,
        seq_len=data.seq_len,
        seed=data.seed,
        block_rows=data.block_rows,
    )


def plan_manifest(manifest: Manifest, tokens: float | None) -> Plan:
    """The plan of a run of so many tokens over a corpus, in rows of one chunk.

    None takes the recipe's budget; without one, the longest run that keeps the proportions.
    """
    # A run may choose its blocks: stages are not rounded to them here.
    mixture = of_run(manifest, DataConfig(seq_len=manifest.chunk_tokens, block_rows=1))
    budget = manifest.recipe["mixture"]["tokens"] if tokens is None else tokens
    rows = int(budget) // mixture.seq_len
    if not rows and tokens is None:
        rows = mixture.longest(tolerance=manifest.mixture.tolerance)
    return mixture.plan(rows)


def lines(plan: Plan) -> list[str]:
    """The plan as a table for a terminal."""
    mixture = plan.mixture
    return [
        f"mixture of {mixture.length(plan.end)}, no source more than {mixture.max_epochs:g} times:",
        f"  {'':<24}{'asked':>8}{'real':>8}{'tokens':>9}{'epochs':>8}",
        *_table(plan),
        *_stages(plan),
    ]


def _table(plan: Plan) -> Iterator[str]:
    for t in plan.types:
        note = "  runs short" if t.planned < t.asked - SHOWN else ""
        shares = f"{t.asked:>8.1%}{t.real:>8.1%}"
        yield f"  {t.name:<24}{shares}{count(t.tokens):>9}{t.epochs:>8.2f}{note}"
        of_type = [s for s in plan.sources if s.supply.type == t.name]
        if len(of_type) == 1 and of_type[0].supply.source == t.name:
            continue
        for s in of_type:
            note = "  at its limit" if s.full else ""
            if not s.supply.rows:
                note = f"  has no row of seq_len={plan.mixture.seq_len}"
            drawn = s.supply.tokens * s.epochs
            shares = f"{s.asked:>8.1%}{s.real:>8.1%}"
            yield f"    {s.supply.source:<22}{shares}{count(drawn):>9}{s.epochs:>8.2f}{note}"


def _stages(plan: Plan) -> Iterator[str]:
    if len(plan.stages) < 2:
        return
    for s in plan.stages:
        shares = (
            f"{t} {real:.1%}"
            + (f" (asked {s.asked[t]:.1%})" if abs(s.planned[t] - s.asked[t]) > SHOWN else "")
            for t, real in s.real.items()
        )
        yield f"  rows {s.start:,} to {s.end:,}: {', '.join(shares)}"


def refusal(plan: Plan, tolerance: float) -> str | None:
    """Why the plan is refused, with the numbers and the ways out; None if it is not.

    It is refused if the planned share of a type differs by more than `tolerance` from the one asked
    for, over the run or in a stage.
    """
    if plan.off <= tolerance:
        return None
    mixture = plan.mixture
    short = [t for t in plan.types if t.needed > t.capacity]
    found = [f"the mixture of {mixture.length(plan.end)} is {_difference(plan, tolerance)}"]
    found += [_shortage(t, mixture.max_epochs) for t in short]
    if short:
        epochs = max(t.needed / t.capacity for t in short) * mixture.max_epochs
        ways = [
            mixture.shorter(plan.end, tolerance),
            f"add text of {', '.join(t.name for t in short)}",
            f"raise max_epochs to {math.ceil(epochs * 10) / 10:g}",
            "ask for other proportions",
        ]
    else:
        ways = [f"stages end at multiples of block_rows={mixture.block_rows}: lower it"]
    accepted = f"{math.ceil(plan.off * 1000) / 1000:g}"
    return "; ".join(found) + f"; {', '.join(ways)}, or accept it: a tolerance of {accepted}{WHERE}"


def _difference(plan: Plan, tolerance: float) -> str:
    """The types that are too far off, over the run or else in the first such stage."""
    run = {t.name: t.asked for t in plan.types}, {t.name: t.planned for t in plan.types}
    stages = ((f" in rows {s.start:,} to {s.end:,}", s.asked, s.planned) for s in plan.stages)
    for where, asked, planned in (("", *run), *stages):
        types = [t for t in asked if abs(planned[t] - asked[t]) > tolerance]
        if types:
            found = (f"{t} {planned[t]:.1%} instead of {asked[t]:.1%}" for t in types)
            return f"{', '.join(found)}{where}"
    raise AssertionError(f"no share differs by more than {tolerance}")


def _shortage(t: TypePart, max_epochs: float) -> str:
    more = math.ceil((t.needed - t.capacity) / max_epochs)
    return (
        f"it takes {count(t.needed)} tokens of {t.name}, and {count(t.capacity / max_epochs)} "
        f"repeated {max_epochs:g} times are {count(t.capacity)}: {count(more)} more are needed"
    )
