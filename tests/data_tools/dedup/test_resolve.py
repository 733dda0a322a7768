"""Who stays: whatever is similar to what, and however the corpus grew."""

import random

import numpy as np
import pytest

from data_tools.dedup.components import components
from data_tools.dedup.config import SameConfig, SurvivorConfig
from data_tools.dedup.index import FACT
from data_tools.dedup.resolve import Clusters, Members, resolve
from data_tools.dedup.verify import Similarity

THRESHOLD = SameConfig().threshold


class Corpus:
    """Documents that grow in number, chained by similarity; some are held out."""

    def __init__(self, seed: int, size: int = 40):
        self.rng = random.Random(seed)
        self.held = np.array([self.rng.random() < 0.25 for _ in range(size)])
        self.quality = np.array([self.rng.random() for _ in range(size)])
        places = np.array([self.rng.uniform(0, size / 5) for _ in range(size)])
        noise = np.array([[self.rng.uniform(0, 0.1) for _ in places] for _ in places])
        # the nearer, the more similar: a ~ b ~ c, and a is not like c
        apart = np.abs(places[:, None] - places) / 2 + np.triu(noise, 1) + np.triu(noise, 1).T
        self.similarity = np.clip(1 - apart, 0, 1)

    def resolve(self, count: int, hidden: float, hidden_held: float = 0.0) -> Clusters:
        """Of the first `count`; these shares of the similar pairs, without and with a held-out
        document, are not looked at."""
        similar = np.argwhere(np.triu(self.similarity[:count, :count] >= THRESHOLD, 1))
        shares = [hidden_held if self.held[pair].any() else hidden for pair in similar]
        looked = [self.rng.random() >= share for share in shares]
        pair_V2 = similar[np.array(looked, bool)]
        label_N = components(pair_V2[:, 0], pair_V2[:, 1], count)
        order = np.argsort(label_N, kind="stable")
        place_N = np.argsort(order)
        fact_N = np.zeros(count, FACT)
        fact_N["id"][:, 0], fact_N["quality"] = order, self.quality[order]
        members = Members(
            label_N[order].astype(np.uint64), fact_N, np.full(count, "s"), self.held[order]
        )

        def compare(pair_E2: np.ndarray) -> Similarity:
            found = self.similarity[order[pair_E2[:, 0]], order[pair_E2[:, 1]]]
            return Similarity(found, found, found)

        found = resolve(members, place_N[pair_V2], compare, SameConfig(), SurvivorConfig())
        columns = (order[found.gone_D], order[found.kept_D], order[found.like_D])
        return Clusters(*columns, found.jaccard_D, found.contained_D)


@pytest.mark.parametrize("hidden", [0.0, 0.3])
@pytest.mark.parametrize("block", range(4))
def test_training_is_like_no_evaluation_text_of_this_corpus_or_a_smaller_one(block, hidden):
    seen = 0
    for seed in range(block * 50, block * 50 + 50):
        corpus = Corpus(seed)
        evaluated: set[int] = set()
        for count in (10, 20, 30, 40):
            found = corpus.resolve(count, hidden)
            stands = {int(g): int(k) for g, k in zip(found.gone_D, found.kept_D, strict=True)}
            stay = set(range(count)) - set(stands)
            held = {d for d in stay if corpus.held[d]}
            # what was held out is so still, or what stands for it is
            assert {stands.get(d, d) for d in evaluated} <= held
            evaluated |= held
            near = corpus.similarity[np.ix_(sorted(stay - held), sorted(evaluated))] >= THRESHOLD
            assert not near.any()
            seen += len(evaluated - held)
    assert seen > 50  # evaluation documents that another stands for


@pytest.mark.parametrize("block", range(4))
def test_what_goes_is_like_one_that_stays(block):
    third = 0
    for seed in range(block * 50, block * 50 + 50):
        corpus = Corpus(seed)
        found = corpus.resolve(40, 0.3)
        assert len(set(found.gone_D)) == len(found.gone_D)
        assert not set(found.kept_D) & set(found.gone_D)
        assert (corpus.similarity[found.gone_D, found.like_D] >= THRESHOLD).all()
        assert (found.jaccard_D == corpus.similarity[found.gone_D, found.like_D]).all()
        stands = dict(zip(found.gone_D, found.kept_D, strict=True))
        for gone, kept, like in zip(found.gone_D, found.kept_D, found.like_D, strict=True):
            if kept != like:  # only where it is like a held-out one that went for another
                assert corpus.held[like] and corpus.held[kept] and not corpus.held[gone]
                assert stands[like] == kept
                third += 1
        stay = sorted(set(range(40)) - set(found.gone_D))
        assert len(stay) + len(found.gone_D) == 40
    assert third > 10


def test_what_is_held_out_goes_for_nothing_else_even_where_a_pair_was_missed():
    missed = 0
    for seed in range(100):
        corpus = Corpus(seed)
        found = corpus.resolve(40, 0.3, 0.5)
        assert corpus.held[found.kept_D[corpus.held[found.gone_D]]].all()
        missed += (corpus.held[found.like_D] & ~corpus.held[found.gone_D]).sum()
    assert missed > 100


def test_the_middle_of_a_chain_goes_with_the_held_out_end():
    corpus = Corpus(0, 3)
    corpus.similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.9], [0.1, 0.9, 1]])
    corpus.held = np.array([True, False, False])
    corpus.quality = np.array([0.1, 0.9, 0.5])
    found = corpus.resolve(3, 0)
    assert (found.gone_D.tolist(), found.kept_D.tolist()) == ([1], [0])
    corpus.held[:] = False
    found = corpus.resolve(3, 0)
    assert sorted(found.gone_D.tolist()) == [0, 2] and set(found.kept_D) == {1}
