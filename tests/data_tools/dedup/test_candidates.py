"""Stars: a centre for each bucket, and for each part of a large one."""

import numpy as np

from data_tools.dedup.candidates import star


def pairs(keys: list[int], nexts: list[int], ranks: list[int], limit: int) -> tuple[set, list]:
    arrays = np.array(keys, np.uint64), np.array(nexts, np.uint32), np.array(ranks)
    pair_E, oversized = star(*arrays, limit)
    assert (np.diff(pair_E.astype(np.int64)) > 0).all()
    return {(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in pair_E}, oversized


def test_the_smallest_is_the_centre():
    found = pairs([7, 9, 7, 7, 9], [1, 1, 2, 1, 1], [5, 1, 3, 8, 0], 10)
    assert found == ({(3, 5), (3, 8), (0, 1)}, [])


def test_a_pair_of_two_buckets_is_one_pair():
    assert pairs([1, 1, 2, 2], [0] * 4, [0, 1, 1, 0], 10) == ({(0, 1)}, [])


def test_a_large_bucket_is_split_by_the_next_band_and_stays_connected():
    keys, nexts, ranks = [7] * 6, [20, 20, 20, 10, 10, 30], [0, 4, 5, 1, 3, 2]
    found = pairs(keys, nexts, ranks, 5)
    assert found == ({(0, 4), (0, 5), (1, 3), (0, 1), (0, 2)}, [6])
    order = np.random.RandomState(0).permutation(6)
    keys, nexts, ranks = ([column[i] for i in order] for column in (keys, nexts, ranks))
    assert pairs(keys, nexts, ranks, 5) == found


def test_nothing():
    assert pairs([], [], [], 5) == (set(), [])
