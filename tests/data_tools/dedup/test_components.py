"""Connected components."""

import random

import numpy as np
import pytest

from data_tools.dedup.components import components


@pytest.mark.parametrize("edges", [0, 40, 90, 400])
def test_labels_are_the_smallest_of_each_component(edges):
    rng = random.Random(edges)
    pairs = [(rng.randrange(100), rng.randrange(100)) for _ in range(edges)]
    labels = list(range(100))
    for _ in range(100):
        for a, b in pairs:
            labels[a] = labels[b] = min(labels[a], labels[b])
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    assert components(first, second, 100).tolist() == labels


def test_a_long_chain():
    order = np.random.RandomState(0).permutation(20_000)
    assert (components(order[:-1], order[1:], 20_000) == 0).all()
