"""Units: what counts, what does not, and that equal hashes mean equal spellings."""

import random

import numpy as np
import pytest

from data_tools.dedup.units import PIECE, grams, spell, units


def test_prose_is_characters_and_words():
    parts, single = spell("Hello，世界！ＡＢＣ don't re-use x_1 été 한국어 ｶﾅ", code=False)
    assert parts == [
        *(
            "hello",
            "世",
            "界",
            "abc",
            "don",
            "t",
            "re",
            "use",
            "x",
            "1",
            "été",
            "한국어",
            "カ",
            "ナ",
        )
    ]
    assert single == [p in "世界カナ" for p in parts]


def test_case_width_punctuation_and_space_do_not_count_in_prose():
    one = "Ｔｈｅ model, 2024年： 训练（大）模型。"
    other = "the  MODEL\n2024年训练大模型"
    assert spell(one, code=False) == spell(other, code=False)
    assert units([one], False).hash_U.tolist() == units([other], False).hash_U.tolist()


def test_code_is_names_numbers_and_signs():
    parts, single = spell("def f_1(X):\n\treturn X+0x1F  # 注释\n", code=True)
    assert parts == [
        *("def", "f_1", "(", "X", ")", ":", "return", "X", "+", "0x1F", "#", "注", "释")
    ]
    assert single == [p in "():+#注释" for p in parts]


@pytest.mark.parametrize("code", [False, True])
def test_hashes_are_equal_where_units_are(code):
    alphabet = "abAB01_ .,\n\t()，。你好世界ＡéÉ𠀀😀\u200b한"
    rng = random.Random(0)
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(60))) for _ in range(2000)]
    found = units(texts, code)
    spelled = [spell(text, code) for text in texts]
    assert np.diff(found.bounds).tolist() == [len(parts) for parts, _ in spelled]
    assert found.single_U.tolist() == [s for _, single in spelled for s in single]
    names: dict[int, str] = {}
    all_parts = [p for parts, _ in spelled for p in parts]
    for hash, part in zip(found.hash_U.tolist(), all_parts, strict=True):
        assert names.setdefault(hash, part) == part
    assert len(names) == len(set(all_parts))


def test_a_text_has_the_same_units_alone_and_among_others():
    texts = ["", "一二三", "。。。", "a" * 10, " ", "x y z " * 50_000, "末"]
    together = units(texts, False)
    for i, text in enumerate(texts):
        here = slice(*together.bounds[i : i + 2].tolist())
        alone = units([text], False)
        assert together.hash_U[here].tolist() == alone.hash_U.tolist()
        assert alone.bounds.tolist() == [0, len(spell(text, False)[0])]


def test_a_long_word_is_cut_where_a_piece_ends():
    text = "a" * PIECE + "b"
    assert spell(text, False)[0] == ["a" * PIECE, "b"]
    assert len(units([text], False).hash_U) == 2


def test_no_text():
    found = units([], False)
    assert len(found.hash_U) == 0 and found.bounds.tolist() == [0]


def test_runs_do_not_depend_on_where_the_work_is_cut():
    text = " ".join(map(str, range(PIECE // 4)))
    long = units([text] * 5, False)
    assert len(long.hash_U) > PIECE
    alone, inside_U = grams(units([text], False), 7, 7)
    hash_U, all_inside_U = grams(long, 7, 7)
    assert hash_U[all_inside_U].tolist() == alone[inside_U].tolist() * 5


@pytest.mark.parametrize(("words", "singles"), [(3, 3), (2, 4), (9, 50)])
def test_grams_end_within_their_text(words, singles):
    texts = ["a b c d 一二三四五六 e f", "", "b c d", "一二三四五 a b", "z"]
    found = units(texts, False)
    hash_U, inside_U = grams(found, words, singles)
    spelled: list[tuple[str, ...] | None] = []
    for text in texts:
        parts, single = spell(text, False)
        for i, alone in enumerate(single):
            run = tuple(parts[i : i + (singles if alone else words)])
            spelled.append(run if len(run) == (singles if alone else words) else None)
    assert inside_U.tolist() == [run is not None for run in spelled]
    pairs = {(h, run) for h, run in zip(hash_U.tolist(), spelled, strict=True) if run}
    assert len(pairs) == len({h for h, _ in pairs}) == len({run for _, run in pairs})
