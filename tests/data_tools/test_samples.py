"""Samples: a few, and the same from all partitions together as from one."""

import random

from data_tools.samples import SAMPLES, first


def test_the_cut_into_partitions_changes_no_sample():
    ids = [random.Random(n).randbytes(16) for n in range(100)]
    expected = sorted(ids)[:SAMPLES]
    for size in (1, 7, 100):
        parts = [first(ids[i : i + size], bytes) for i in range(0, 100, size)]
        assert first((id for part in parts for id in part), bytes) == expected
