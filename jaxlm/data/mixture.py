"""The mixture of a run over a corpus: which one it is, the plan for people, and when it is refused.

The plan itself is `mixture_plan`'s.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from jaxlm.config import DataConfig
from jaxlm.data.manifest import Manifest
from jaxlm.data.mixture_plan import (
    WHERE,
    Mixture,
    Plan,
    Stage,
    StagePart,
    Supply,
    TypePart,
    count,
)
from jaxlm.data.order import LIMIT, OrderError
from jaxlm.data.shares import ROUNDING

SHOWN = 0.0005
"""The least difference of a share that a table shows."""


def of_run(manifest: Manifest, data: DataConfig, stages: Sequence[Stage] = ()) -> Mixture:
    """The mixture of a run over a corpus; without stages, the one that the corpus was made for.

    `OrderError` if stages and corpus do not fit each other, `ManifestError` for `seq_len`.
    """
    chunks_per_row = manifest.chunks_per_row(data.seq_len)
    supplies = []
    for source, shards in sorted(manifest.sources("train").items()):
        rows = sum(s.chunks // chunks_per_row for s in shards)
        chunks = sum(s.chunks for s in shards)
        found = sum(s.tokens for s in shards) * rows * chunks_per_row / max(chunks, 1)
        weight = manifest.mixture.source_weights[source]
        supplies.append(Supply(source, shards[0].type, rows, found, weight))
    last = len(manifest.mixture.stages) - 1
    of_corpus = tuple(
        Stage(None if k == last else Fraction(str(stage.until)), stage.weights)
        for k, stage in enumerate(manifest.mixture.stages)
    )
    own, max_epochs, tolerance = manifest.mixture, data.max_epochs, data.mixture_tolerance
    return Mixture(
        supplies=tuple(supplies),
        stages=tuple(stages) or of_corpus,
        max_epochs=own.max_epochs if max_epochs is None else max_epochs,
        seq_len=data.seq_len,
        seed=data.seed,
        block_rows=data.block_rows,
        tolerance=own.tolerance if tolerance is None else tolerance,
    )


def plan_manifest(manifest: Manifest, tokens: float | None) -> Plan:
    """The plan of a run of so many tokens over a corpus, in rows of one chunk.

    None takes the recipe's budget; without one, the longest run that keeps the proportions.
    `OrderError` for a number of tokens that no run can have.
    """
    # A run may choose its blocks: stages are not rounded to them here.
    mixture = of_run(manifest, DataConfig(seq_len=manifest.chunk_tokens, block_rows=1))
    budget = manifest.setting("mixture.tokens", float) if tokens is None else tokens
    if not 0 <= budget < LIMIT:
        raise OrderError(f"a run of {budget:g} tokens: give a number from 1 to 4e18, as 4e9")
    rows = int(budget) // mixture.seq_len
    if not rows and tokens is None:
        rows = mixture.longest()
    return mixture.plan(rows)


def lines(plan: Plan) -> list[str]:
    """The plan as a table for a terminal.

    A warning at its end tells real shares that are off by more than the tolerance because the run
    ends within a block. They are not refused: the rows of a block count in short runs only.
    """
    mixture = plan.mixture
    return [
        f"mixture of {mixture.length(plan.end)}, no source more than {mixture.max_epochs:g} times:",
        f"  {'':<24}{'asked':>8}{'real':>8}{'tokens':>9}{'epochs':>8}",
        *_table(plan),
        *_stages(plan),
        *_cut_off(plan),
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


def _cut_off(plan: Plan) -> Iterator[str]:
    """The warning of `lines`. A row more or less is rounding, and no block's fault."""
    block_rows, tolerance = plan.mixture.block_rows, plan.mixture.tolerance
    for part in plan.parts if plan.end % block_rows else ():
        found = _difference(plan, part, part.real, tolerance + 1 / (part.end - part.start))
        if found and not _difference(plan, part, part.planned, tolerance):
            yield (
                f"  WARNING: really {found}, as the run ends within a block: train on a multiple "
                f"of block_rows={block_rows} rows, or lower block_rows"
            )
            return


def refusal(plan: Plan) -> str | None:
    """Why the plan is refused, with the numbers and the ways out; None if it is not.

    It is refused if the planned share of a type differs by more than the tolerance from the one
    asked for, over the run or in a stage.
    """
    mixture = plan.mixture
    of_parts = (_difference(plan, p, p.planned, mixture.tolerance) for p in plan.parts)
    off = next(filter(None, of_parts), None)
    if off is None:
        return None
    short = [t for t in plan.types if t.needed > t.capacity * (1 + ROUNDING)]
    found = [f"the mixture of {mixture.length(plan.end)} is {off}"]
    found += [_shortage(plan, t) for t in short]
    if short:
        epochs = max(t.needed / t.capacity for t in short) * mixture.max_epochs
        ways = [
            mixture.shorter(plan.end),
            f"add text of {', '.join(t.name for t in short)}",
            f"raise max_epochs to about {math.ceil(epochs * 10) / 10:g}",
            "ask for other proportions",
        ]
    else:
        ways = [f"it is the rounding to blocks of block_rows={mixture.block_rows} rows: lower it"]
    accepted = f"{math.ceil(plan.off * 1000) / 1000:g}"
    return "; ".join(found) + f"; {', '.join(ways)}, or accept it: a tolerance of {accepted}{WHERE}"


def _difference(plan: Plan, part: StagePart, shares: Mapping[str, float], most: float) -> str:
    """The types whose shares are further off than `most`; empty if there are none."""
    found = ", ".join(
        f"{type} {_unlike(shares[type], asked)}"
        for type, asked in part.asked.items()
        if abs(shares[type] - asked) > most + ROUNDING
    )
    whole = (part.start, part.end) == (0, plan.end)
    return found if whole or not found else f"{found} in rows {part.start:,} to {part.end:,}"


def _unlike(share: float, asked: float) -> str:
    """Two shares that differ, with so many digits that one sees it."""
    digits = next(n for n in itertools.count(1) if f"{share:.{n}%}" != f"{asked:.{n}%}")
    return f"{share:.{digits}%} instead of {asked:.{digits}%}"


def _shortage(plan: Plan, t: TypePart) -> str:
    epochs = plan.mixture.max_epochs
    sources = (s.supply for s in plan.sources if s.supply.type == t.name and s.supply.weight)
    have = count(math.fsum(s.tokens for s in sources))
    more = count(math.ceil((t.needed - t.capacity) / epochs))
    return (
        f"it takes {count(t.needed)} tokens of {t.name}, and {have}, repeated {epochs:g} times at "
        f"most, give {count(t.capacity)}: {more} more are needed"
    )
