"""Cleaning rules that count characters, and the measurements that they share."""

import random
import unicodedata

import numpy as np
import pytest

from data_tools.clean import characters
from data_tools.clean.measure import CHINESE_SHARE, Measures, measure
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, reason

HEX = "\n".join(
    f"{i * 16:08x}  " + " ".join(f"{(i * 37 + j * 91) % 256:02x}" for j in range(16))
    for i in range(40)
)
TABLE = "\n".join(f"北京\t{i * 977}\t{i * 3.7:.2f}%\t{i * 31}" for i in range(9, 60))


@pytest.mark.parametrize(
    ("name", "params", "text", "detail"),
    [
        (
            "symbol_ratio",
            {"most": 0.3},
            "┌──┐ab🙂\ufffd☎\ue000",
            "0.800 of it symbols, at most 0.3",
        ),
        ("digit_ratio", {}, HEX, "0.6"),
        ("digit_ratio", {}, TABLE, "0.7"),
        (
            "digit_ratio",
            {},
            "价格 １２３４５６７８９ ④ ٣٤",
            "0.857 of it digits, at most 0.2 allowed",
        ),
        ("letter_ratio", {}, "a 1 b2 - 3", "0.400 of the words letters, at least 0.8 wanted"),
        (
            "letter_ratio",
            {},
            "中文，，。。12",
            "0.250 of the characters letters, at least 0.6 want",
        ),
        ("alphanumeric_ratio", {}, "ab1" + " -" * 9, "0.143 of it letters and digits, at least"),
        (
            "han_ratio",
            {},
            "这是 mostly English",
            "0.133 of the letters Chinese, at least 0.3 wante",
        ),
        ("hash_ratio", {}, "#a #b c", "0.667 hash signs a word, at most 0.1 allowed"),
        ("hash_ratio", {}, "看了又看……好的…", "0.800 ellipses a word, at most 0.1 allowed"),
        ("hash_ratio", {}, "##", "2.000 hash signs a word, at most 0.1 allowed"),
        ("url_ratio", {}, "见http://a.cn/b，和 www.x.org/y", "0.889 of it addresses, at most 0.2"),
        ("curly_brackets", {}, "var x = {};", "0.1250 of it curly brackets, at most 0.0 allowed"),
    ],
)
def test_reasons(name, params, text, detail):
    found = reason(name, text, **params)
    assert found and found.startswith(detail)


def test_symbol_ratio_takes_code_and_every_script_for_text():
    for text in (
        CODE,
        "𠮷野家，日本語、한국어。العربية हिन्दी",
        "1 < 2 ~ `$x` ^ |",
        "∑ x² ≤ ￥5 × €3",
    ):
        assert reason("symbol_ratio", text, most=0.0) is None


def test_kinds_are_those_of_unicode():
    text = "中〇々豈𠮷 aé́я한かـ １2½Ⅷ，.（-_ $+^\u200b🙂│\x00\ue000\ufffd\u0378\t\n\u3000\u2028"
    expected = {"中〇々豈𠮷": characters.HAN, "🙂│\x00\ue000\ufffd\u0378": characters.SYMBOL}
    kinds = characters.kinds()[characters.code_points(text)]
    for character, kind in zip(text, kinds, strict=True):
        for group, wanted in expected.items():
            if character in group:
                assert kind == wanted
        if character.isspace():
            assert kind == characters.SPACE
        elif unicodedata.category(character)[0] in "LM" and character not in "中々豈𠮷":
            assert kind == characters.LETTER
        elif unicodedata.category(character)[0] == "P":
            assert kind == characters.PUNCTUATION


def naive(text: str) -> dict[str, object]:
    """The measurements, character by character."""
    kinds = [int(characters.kinds()[ord(c)]) for c in text]
    han = kinds.count(characters.HAN)
    letters = kinds.count(characters.LETTER)
    runs = sum(
        kind == characters.LETTER and (i == 0 or kinds[i - 1] != characters.LETTER)
        for i, kind in enumerate(kinds)
    )
    return {
        "visible": sum(not c.isspace() for c in text),
        "letters": han + letters,
        "han_share": han / (han + letters) if han + letters else 0.0,
        "word_count": runs + han / 1.6,
        "lines": [line.strip() for line in text.split("\n") if line.strip()],
        "words": text.split(),
    }


def test_measurements_are_what_they_say():
    rng = random.Random(0)
    parts = ["中文", "word", " ", "\n", "，", "1", "🙂", "é", "\t\n ", "かな", "𠮷"]
    for size in (0, 1, 2, 5, 50):
        for _ in range(40):
            text = "".join(rng.choices(parts, k=size))
            measures = Measures(text)
            for name, value in naive(text).items():
                assert getattr(measures, name) == value, (name, text)
            assert len(measures.word_starts) == len(text.split())
            pieces = np.split(np.array(list(text), dtype=object), measures.word_starts)[1:]
            assert ["".join(p).split()[0] for p in pieces] == text.split()


def test_the_form_is_chosen_by_the_share_of_han():
    assert measure(CHINESE).is_chinese and not measure(ENGLISH).is_chinese
    assert not measure(CODE).is_chinese and not measure("").is_chinese
    for han, is_chinese in ((19, False), (20, True)):
        text = "中" * han + "a" * (100 - han)
        assert measure(text).han_share == han / 100
        assert measure(text).is_chinese == is_chinese == (han / 100 >= CHINESE_SHARE)
    assert measure(CHINESE + ENGLISH).is_chinese
