"""Permutations: bijective, invertible, even."""

import numpy as np
import pytest

from jaxlm.data.permutation import permute

KEYS = np.frombuffer(np.random.default_rng(0).bytes(8 * 20_000), np.uint64)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 100, 1000, 65_537])
def test_a_permutation_and_its_inverse(size):
    x = np.arange(size)
    for key in KEYS[:3]:
        y = permute(x, size, key)
        assert (np.sort(y) == x).all()
        assert (permute(y, size, key, inverse=True) == x).all()


def test_large_domains():
    for size in (2**31 + 11, 2**33 + 1, 2**62):
        x = np.random.default_rng(0).integers(0, size, 1000)
        y = permute(x, size, KEYS[0])
        assert ((y >= 0) & (y < size)).all()
        assert len(set(y.tolist())) == len(set(x.tolist()))
        assert (permute(y, size, KEYS[0], inverse=True) == x).all()


def test_each_element_has_its_own_size_and_key():
    sizes = np.arange(1, 200)
    together = permute(sizes - 1, sizes, KEYS[:199])
    for i, size in enumerate(sizes.tolist()):
        assert together[i] == permute(np.array([size - 1]), size, KEYS[i])[0]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 12, 33])
def test_every_element_goes_everywhere_equally_often(size):
    """Chi-square over where each element goes, at fixed keys: within 4 standard deviations."""
    went = np.stack([permute(np.full(len(KEYS), i), size, KEYS) for i in range(size)])
    counts = np.stack([np.bincount(to, minlength=size) for to in went])
    expected, freedom = len(KEYS) / size, (size - 1) ** 2
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_permutation_is_as_likely(size):
    """Within 5 standard deviations of chi-square: with 8 rounds size 5 is 60 away."""
    went = np.stack([permute(np.full(len(KEYS), i), size, KEYS) for i in range(size)])
    _, counts = np.unique(size ** np.arange(size) @ went, return_counts=True)
    freedom = len(counts) - 1
    assert len(counts) == {3: 6, 4: 24, 5: 120}[size]
    expected = len(KEYS) / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5
