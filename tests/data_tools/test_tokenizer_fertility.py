"""Spans of tokens in a text, and what is counted in them."""

import numpy as np
import pytest

from data_tools.tokenizer import fertility
from data_tools.tokenizer.fertility import Fertility, kind_of
from data_tools.tokenizer.spans import Spans, covered, overlapping, spelled, within
from data_tools.tokenizer.words import BREAK, cut
from jaxlm.data.tokenizer import Spelling


def spell(*pieces: bytes) -> Spelling:
    """A vocabulary of these pieces."""
    starts = np.cumsum([0, *map(len, pieces)])
    return Spelling(np.frombuffer(b"".join(pieces), np.uint8), starts)


def split(text: str, *pieces: str) -> Spans:
    """A text made of these pieces, one token each."""
    spans = spelled(text, list(range(len(pieces))), spell(*(p.encode() for p in pieces)))
    assert spans is not None
    return spans


def test_a_character_spread_over_tokens_belongs_to_each_of_them():
    vocabulary = spell(b"", b"ab", "中".encode()[:1], "中".encode()[1:], "文".encode())
    spans = spelled("ab中文", [0, 1, 2, 3, 0, 4], vocabulary)  # piece 0 is a control symbol
    assert spans is not None
    assert spans.begin_T.tolist() == [0, 2, 2, 3] and spans.end_T.tolist() == [2, 3, 3, 4]
    assert covered("ab中文", spans) == 3  # not 中


def test_a_character_of_no_known_token_is_not_covered():
    spans = Spans(np.array([0, 3]), np.array([2, 5]), np.array([True, False]))
    assert covered("ab cd", spans) == 2


def test_a_text_that_the_pieces_do_not_spell_has_no_spans():
    assert spelled("ab", [0], spell(b"abc")) is None
    assert spelled("", [], spell(b"abc")) is not None


def test_tokens_that_overlap_a_stretch_and_tokens_within_it():
    spans = split("(user_id)", "(u", "ser", "_", "id)")
    at = np.array([1]), np.array([8])  # user_id
    assert overlapping(spans, *at).tolist() == [4] and within(spans, *at).tolist() == [2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("user_id", "snake_case"),
        ("_private", "snake_case"),
        ("MAX_SIZE", "snake_case"),
        ("userId", "camelCase"),
        ("HTTPServer", "camelCase"),
        ("__init__", "dunder"),
        ("__", "snake_case"),
        ("value", "plain"),
        ("NONE", "plain"),
        ("Token", "plain"),
        ("x1", "plain"),
    ],
)
def test_kinds_of_identifiers(name, kind):
    assert kind_of(name) == kind


def test_stretches_are_counted_by_kind():
    text = "x = user_id\n    maxSize(12, 3.5)  # 0x1F\n"
    pieces = "x", " =", " user", "_", "id", "\n", "   ", " max", "Size", "(", "1", "2", ","
    spans = split(text, *pieces, " 3", ".", "5", ")", "  # 0x1F\n")
    sums: dict[str, Fertility] = {}
    fertility.measure(text, spans, sums, code=True)
    assert sums["snake_case"] == Fertility(1, 3, 0)
    assert sums["camelCase"] == Fertility(1, 2, 1)
    assert sums["plain"] == Fertility(1, 1, 1)  # x: not the digits of 0x1F
    assert sums["number"] == Fertility(3, 6, 2)  # 12, 3.5 and the 0 of 0x1F
    assert sums["line start"] == Fertility(1, 2, 1)


def test_prose_has_numbers_only():
    sums: dict[str, Fertility] = {}
    fertility.measure("in 1984\n  x", split("in 1984\n  x", "in 1984\n  x"), sums, code=False)
    assert sums == {"number": Fertility(1, 1, 1)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("self.user_id", ["self", ".", "user_id"]),
        ("  __init__(x1)", ["  __init__", "(", "x", "1", ")"]),
        ("中文，user_id。他们", ["中文", "，", "user_id", "。", "他们"]),
        ("):\n\t\treturn  x  ", ["):\n\t\t", "return", "  x", "  "]),
        ("नमस्ते é", ["नमस्ते", " é"]),
        ("", [""]),
    ],
)
def test_words_of_training(text, words):
    assert cut(text).split(BREAK) == words
