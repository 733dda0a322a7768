"""Cleaning rules against repetition, and the n-grams that they count."""

import random
from collections import Counter

import numpy as np
import pytest

from data_tools.clean import ngrams
from data_tools.clean.measure import Measures
from tests.data_tools.cleaning import CHINESE, ENGLISH, reason

SENTENCE = "加微信领取优惠券，名额有限，先到先得！"


@pytest.mark.parametrize(
    ("name", "params", "text", "detail"),
    [
        (
            "duplicate_lines",
            {},
            "甲乙\n丙丁\n甲乙\n\n 甲乙 \n",
            "0.500 of the lines in repeated lines, at most 0.287 allowed",
        ),
        (
            "duplicate_lines",
            {},
            "a\nb\nc\nd\ne\n" + "a long line of text\n" * 2,
            "0.442 of the characters in repeated lines, at most 0.2 allowed",
        ),
        ("top_ngrams", {}, SENTENCE * 9, "0.312 of it one 5-gram"),
        ("top_ngrams", {}, "buy now " * 9, "1.000 of it one 2-gram, at most 0.2 allowed"),
        ("top_ngrams", {}, "8" * 60 + "中" * 40, "1.000 of it one 3-gram, at most 0.2 allowed"),
        (
            "duplicate_ngrams",
            {},
            CHINESE * 2,
            "0.500 of it in repeated 8-grams, at most 0.35 allowe",
        ),
        (
            "duplicate_ngrams",
            {},
            ENGLISH * 2,
            "0.500 of it in repeated 5-grams, at most 0.15 allowe",
        ),
        (
            "duplicate_ngrams",
            {"characters": ((13, 0.4),)},
            CHINESE * 2,
            "0.500 of it in repeated 13-grams, at most 0.4 allowed",
        ),
    ],
)
def test_reasons(name, params, text, detail):
    found = reason(name, text, **params)
    assert found and found.startswith(detail)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("duplicate_lines", "一\n----\n二\n----\n三\n----\n四\n====\n====\n"),
        ("duplicate_lines", CHINESE),
        ("top_ngrams", "a b c"),
        ("top_ngrams", "中文" * 2),
        ("duplicate_ngrams", "a b c d a b c d"),
        ("duplicate_ngrams", CHINESE + CHINESE[:40]),
    ],
)
def test_kept(name, text):
    assert reason(name, text) is None


def test_no_limits_drop_nothing():
    for name in ("top_ngrams", "duplicate_ngrams"):
        assert reason(name, ENGLISH * 5, words=(), characters=()) is None


def naive(units: list[int], n: int) -> tuple[list[bool], int, int]:
    """Which n-grams are repeats, the largest count, and the units in repeats."""
    grams = [tuple(units[i : i + n]) for i in range(len(units) - n + 1)]
    repeats = [gram in grams[:i] for i, gram in enumerate(grams)]
    covered = {i + k for i, again in enumerate(repeats) if again for k in range(n)}
    return repeats, max(Counter(grams).values(), default=0), len(covered)


def test_ngrams_are_counted_exactly():
    rng = random.Random(0)
    for size in (0, 1, 2, 7, 80):
        for alphabet in (1, 2, 5, 1_000):
            units = [rng.randrange(alphabet) for _ in range(size)]
            for n in (1, 2, 3, 8):
                hashes = ngrams.hashes(np.array(units, np.uint64), n)
                repeats, largest, covered = naive(units, n)
                found = ngrams.repeats(hashes)
                assert found.tolist() == repeats
                assert ngrams.repeat_count(hashes) == sum(repeats)
                assert ngrams.largest_count(hashes) == largest
                assert ngrams.covered(found, n) == covered


def test_units_are_words_or_characters():
    units = Measures("the cat, the\ncat, 中").units.tolist()
    assert units == [0, 1, 0, 1, 2]
    assert Measures("中文，ab 1。").units.tolist() == [ord(c) for c in "中文ab1"]
    assert not len(Measures("").units)
