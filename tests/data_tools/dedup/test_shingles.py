"""Shingles: as many as a naive reading finds, none for a short text."""

import itertools

import numpy as np

from data_tools.dedup.config import ShingleConfig
from data_tools.dedup.shingles import BATCH, batches, shingles
from tests.data_tools.dedup.material import chinese, document, english, naive_set


def sizes(texts: list[str], code: bool, config: ShingleConfig) -> list[int]:
    hash_S, bounds = shingles(texts, code, config)
    return [len(np.unique(hash_S[i:j])) for i, j in itertools.pairwise(bounds)]


def test_sets_are_those_of_a_naive_reading():
    texts = ["".join(chinese(0, 300)), " ".join(english(0, 200)), "".join(chinese(1, 50)) * 3]
    assert sizes(texts, False, ShingleConfig()) == [
        len(naive_set(document(text, 0))) for text in texts
    ]
    code = ["def f(x):\n    return x + 1\n" * 9]
    assert sizes(code, True, ShingleConfig()) == [len(naive_set(document(code[0], 0, "code")))]


def test_a_short_text_has_none():
    config = ShingleConfig(shortest=4)
    texts = ["一二三四五六七", "一二三四五六七八", "。" * 99, ""]
    assert sizes(texts, False, config) == [0, 4, 0, 0]


def test_sizes_by_script():
    config = ShingleConfig(characters=3, words=2, tokens=4, shortest=1)
    assert sizes(["一二三四 a b c"], False, config) == [4 + 2]  # 一二三 二三四 三四a 四ab ab bc
    assert sizes(["一二三四 a b c"], True, config) == [4]


def test_batches_hold_each_text_once():
    lengths = [1, BATCH, BATCH + 1, 5, 5, BATCH - 10, 1]
    cut = list(batches(lengths))
    assert [i for piece in cut for i in range(piece.start, piece.stop)] == list(range(7))
    assert [len(lengths[piece]) for piece in cut] == [1, 1, 1, 3, 1]
    assert list(batches([])) == []
