"""The plan of a run over the corpus, as plain data."""

from typing import Any

from jaxlm.data.mixture_plan import Plan


def mixture(plan: Plan | None) -> dict[str, Any] | None:
    """Shares of tokens by type, source and stage, asked for and real; None without a plan."""
    if plan is None:
        return None
    return {
        "tokens": plan.end * plan.mixture.seq_len,
        "max_epochs": plan.mixture.max_epochs,
        "proportions": bool(plan.mixture.stages),
        "types": [t._asdict() for t in plan.types],
        "sources": [
            {
                "source": s.supply.source,
                "type": s.supply.type,
                "weight": s.supply.weight,
                "supply": s.supply.tokens,
                "asked": s.asked,
                "real": s.real,
                "epochs": s.epochs,
                "full": s.full,
            }
            for s in plan.sources
        ],
        "stages": [
            {
                "start": s.start * plan.mixture.seq_len,
                "end": s.end * plan.mixture.seq_len,
                "asked": dict(s.asked),
                "real": dict(s.real),
            }
            for s in plan.stages
        ],
    }
