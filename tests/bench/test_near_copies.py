"""The plain reckoning of similarity that near dedup is held against, and the copies made by it."""

import inspect
import random

import numpy as np
import pytest

from bench.near_copies import CODE, PROSE, distinct, jaccard, near_copy, shingles
from data_tools.dedup import shingles as ours
from data_tools.dedup.config import ShingleConfig
from tests.data_tools import small

TEXTS = {
    "chinese": small.chinese(1, 1500),
    "english": inspect.cleandoc(random.Random.__doc__ or "") + small.english(2, 600),
    "code": inspect.getsource(random),
}


def test_similarity_of_sets_by_hand():
    assert shingles("天地玄黄宇宙", code=False) == {tuple("天地玄黄宇"), tuple("地玄黄宇宙")}
    assert shingles("A b, c D e", code=False) == shingles("a B c d E.", code=False)
    assert shingles("a = A", code=True) == {("a", "=", "A")}
    assert jaccard({("a",), ("b",)}, {("b",), ("c",)}) == pytest.approx(1 / 3)


@pytest.mark.parametrize("target", [0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize("kind", TEXTS)
def test_a_copy_is_as_similar_as_it_says(kind: str, target: float):
    code, text = kind == "code", TEXTS[kind]
    words = [u for u in (CODE if code else PROSE).findall(text) if u.isalpha()]
    copy = near_copy(text, target, words, code, seed="1")
    assert copy.jaccard == pytest.approx(target, abs=0.02)
    assert copy.jaccard == jaccard(shingles(text, code), shingles(copy.text, code))
    assert copy == near_copy(text, target, words, code, seed="1")


@pytest.mark.parametrize("kind", TEXTS)
def test_near_dedup_reckons_the_same_similarity(kind: str):
    code, text = kind == "code", TEXTS[kind]
    copy = near_copy(text, 0.8, ["word", "字"], code, seed="2")
    hashes, bounds = ours.shingles([text, copy.text], code, ShingleConfig())
    one, other = (set(part.tolist()) for part in np.split(hashes, bounds[1:-1]))
    assert len(one & other) / len(one | other) == pytest.approx(copy.jaccard, abs=0.01)


def test_of_texts_that_are_alike_the_first_is_distinct():
    text = small.chinese(3, 60)
    assert distinct([text, text.replace("\n", "！"), small.chinese(4, 60), text[:20]]) == [
        True,
        False,
        True,
        True,
    ]
