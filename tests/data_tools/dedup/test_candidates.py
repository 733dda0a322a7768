"""Stars: a centre for each bucket, and for each part of a large one."""

import numpy as np

from data_tools.dedup.candidates import MOST_HELD, parts, spokes, star


def pairs(keys: list[int], nexts: list[int], ranks: list[int], limit: int) -> tuple[set, list]:
    arrays = np.array(keys, np.uint64), np.array(nexts, np.uint32), np.array(ranks)
    bucket_M, part_M, oversized = parts(arrays[0], arrays[1], limit)
    pair_E = star(bucket_M, part_M, arrays[2])
    assert (np.diff(pair_E.astype(np.int64)) > 0).all()
    return unpacked(pair_E), oversized


def unpacked(pair_E: np.ndarray) -> set[tuple[int, int]]:
    return {(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in pair_E}


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


def test_held_out_documents_are_paired_with_all_of_their_part():
    part, rank = [0, 1, 0, 0, 1, 1, 2], [5, 1, 3, 8, 0, 9, 7]
    held, place = [1, 0, 1, 0, 0, 1, 1], [30, 0, 20, 1, 1, 5, 5]
    arrays = np.array(part), np.array(rank), np.array(held, bool), np.array(place, np.uint64)
    expected = {(3, 5), (5, 8), (3, 8), (1, 9), (0, 9)}
    assert unpacked(spokes(*arrays)) == expected
    order = np.random.RandomState(0).permutation(len(part))
    assert unpacked(spokes(*(array[order] for array in arrays))) == expected
    assert unpacked(spokes(*(array[:0] for array in arrays))) == set()
    assert unpacked(spokes(*arrays[:2], np.zeros(7, bool), arrays[3])) == set()


def test_of_many_held_out_documents_the_first_by_their_place_are_paired():
    count = MOST_HELD + 4
    rank = np.arange(count)
    place = np.random.RandomState(1).permutation(count).astype(np.uint64)
    found = unpacked(spokes(np.zeros(count, int), rank, np.ones(count, bool), place))
    late = set(rank[place >= MOST_HELD].tolist())
    assert len(late) == 4
    every = {(a, b) for a in range(count) for b in range(a + 1, count)}
    assert found == {pair for pair in every if not late.issuperset(pair)}
