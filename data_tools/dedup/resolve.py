"""Which documents of a component stay, and for which of them the others go.

The best document of a component stays. Each other one is compared with it: similar ones go, the
rest are a component again, until each document stays or is similar to one that does.

Held-out documents are better than all others, whatever the policy. A document that is not held out
itself and is similar to a held-out one goes in any case, also where that goes too, for a third: so
no text of an evaluation set, in this corpus or a smaller one before it, is trained on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from data_tools.dedup.config import SameConfig, SurvivorConfig
from data_tools.dedup.node import begins
from data_tools.dedup.verify import Similarity

type Compare = Callable[[np.ndarray], Similarity]
"""Of pairs of places, int64[E, 2], best sorted by the first."""


@dataclass(frozen=True)
class Members:
    """Documents by component, in the order of their ids in each."""

    component_N: np.ndarray
    """uint64: key of the component."""
    fact_N: np.ndarray
    """FACT."""
    source_N: np.ndarray
    """str: name of the source."""
    held_N: np.ndarray
    """bool: held out."""


@dataclass(frozen=True)
class Clusters:
    """Documents that go, and those that they go for; all are places in `Members`."""

    gone_D: np.ndarray
    kept_D: np.ndarray
    """The one that stays."""
    like_D: np.ndarray
    """What the one that goes is similar to: the one that stays, or a held-out one that went for
    that."""
    jaccard_D: np.ndarray
    """float64: of gone and like."""
    contained_D: np.ndarray
    """float64: share of the one that goes in the one that it is like; between a held-out document
    and another one the larger of both shares."""

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """All of several, in order."""
        return cls(
            *(np.concatenate(columns) for columns in zip(*map(_columns, parts), strict=True))
        )


def resolve(
    members: Members,
    pair_V2: np.ndarray,
    compare: Compare,
    same: SameConfig,
    survivor: SurvivorConfig,
) -> Clusters:
    """Clusters of the members; `pair_V2` are the similar pairs that are known, in any order."""
    held_N = members.held_N
    pair_H2 = np.concatenate([pair_V2, pair_V2[:, ::-1]])
    pair_H2 = pair_H2[held_N[pair_H2[:, 0]] & ~held_N[pair_H2[:, 1]]]
    pair_H2 = pair_H2[np.lexsort((pair_H2[:, 1], pair_H2[:, 0]))]
    best = _policy(members, survivor)
    best = best[~np.isin(best, pair_H2[:, 1])]
    found = _stars(members.component_N, best, compare, same)
    return Clusters.join([found, _like_held(found, pair_H2, compare, len(held_N))])


def _policy(members: Members, config: SurvivorConfig) -> np.ndarray:
    """int64[N]: places of the documents by component, the best of each first."""
    fact_N = members.fact_N
    order = {name: i for i, name in enumerate(config.sources)}
    criteria = {
        "quality": -fact_N["quality"],
        "longest": -fact_N["length"].astype(np.int64),
        "source": np.array([order.get(name, len(order)) for name in members.source_N], np.int64),
    }
    by_id = np.arange(len(fact_N))
    columns = [members.component_N, ~members.held_N, *(criteria[c] for c in config.order), by_id]
    return np.lexsort(columns[::-1])


def _stars(
    component_N: np.ndarray, best: np.ndarray, compare: Compare, same: SameConfig
) -> Clusters:
    """`best`: places, by component, the best of each first."""
    found = [_clusters(np.empty((0, 2), np.int64), np.empty(0, np.int64), *[np.empty(0)] * 2)]
    while len(best):
        leads = begins(component_N[best])
        lead = best[leads][np.cumsum(leads) - 1]
        pair_E2 = np.stack([lead, best], 1)[~leads]
        similarity = compare(pair_E2)
        same_E = similarity.jaccard_E >= same.threshold
        if same.containment:  # of the one that goes in the one that stays
            same_E |= similarity.second_E >= same.containment
        jaccard_D, contained_D = similarity.jaccard_E[same_E], similarity.second_E[same_E]
        found.append(_clusters(pair_E2[same_E], pair_E2[same_E, 0], jaccard_D, contained_D))
        best = pair_E2[~same_E, 1]
    return Clusters.join(found)


def _like_held(found: Clusters, pair_H2: np.ndarray, compare: Compare, count: int) -> Clusters:
    """What goes for being like a held-out document: of several, for one that stays itself, then
    for the most similar. `pair_H2`: (held-out, other), by the first."""
    stands_N = np.arange(count)
    stands_N[found.gone_D] = found.kept_D
    similarity = compare(pair_H2)
    stays_H = stands_N[pair_H2[:, 0]] == pair_H2[:, 0]
    order = np.lexsort((pair_H2[:, 0], -similarity.jaccard_E, ~stays_H, pair_H2[:, 1]))
    chosen = order[begins(pair_H2[order, 1])]
    contained_E = np.maximum(similarity.first_E, similarity.second_E)
    kept_D = stands_N[pair_H2[chosen, 0]]
    return _clusters(pair_H2[chosen], kept_D, similarity.jaccard_E[chosen], contained_E[chosen])


def _clusters(
    pair_D2: np.ndarray, kept_D: np.ndarray, jaccard_D: np.ndarray, contained_D: np.ndarray
) -> Clusters:
    """`pair_D2`: (what it is like, the one that goes)."""
    return Clusters(pair_D2[:, 1], kept_D, pair_D2[:, 0], jaccard_D, contained_D)


def _columns(clusters: Clusters) -> tuple[np.ndarray, ...]:
    return (
        clusters.gone_D,
        clusters.kept_D,
        clusters.like_D,
        clusters.jaccard_D,
        clusters.contained_D,
    )
