"""What holds for every cleaning rule: thresholds, sound text, hostile text, identity."""

import dataclasses
import pickle
import random

import pytest

from data_tools.clean import EDITORS, RULES
from data_tools.document import Document, Drop
from jaxlm import schema
from jaxlm.schema import ConfigError, parse
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, NEEDED, apply, document, reason

CODE_ONLY = {"alphanumeric_ratio", "encoded_data", "generated", "license", "longest_line"}
CHINESE_ONLY = {"han_ratio"}

HOSTILE = (
    "",
    " ",
    "\n\n\n",
    "\x00",
    "\x00\x01\x02 \x7f\x80\x9f",
    "a",
    "。",
    "{" * 300,
    "#" * 300,
    "…" * 300,
    "🙂" * 300,
    "👨‍👩‍👧‍👦" * 50,
    "\u0301\u0302\u0303" * 50,  # marks without a letter
    "\u202eمرحبا بالعالم\u202c " * 20,
    "שלום עולם. " * 40,
    "한국어 문장입니다. " * 40,
    "\u3000" * 100,
    "\ufeff\u200b\u200d" * 50,
    "\ufffd" * 300,
    "\ue000\U0010ffff\U000e0001\u0378",
    "𠮷𪚥" * 100,
    "字" * 30_000,
    "a" * 30_000,
    "1" * 30_000,
    "a " * 30_000,
    "a\n" * 30_000,
    "\n".join(map(str, range(3_000))),
    "\r\n\x0b\x0c\x1c\x85\u2028\u2029" * 20,
    "http://" * 100,
    "." * 30_000 + "x",
    '"' * 30_000 + ".x",
    "ab, " * 10_000 + "lorem" + " " * 30_000,
    "A" * 59 + "\n" + " " * 30_000,
    "<script>alert(1)</script>" * 20,
    "版权所有\nlorem ipsum\n\n" * 10,
    "İ" * 200 + "ß" * 200,
)


def noise(seed: int) -> str:
    """Characters from everywhere, in clumps."""
    rng = random.Random(seed)
    ranges = [(32, 127), (0, 256), (0x4E00, 0x9FFF), (0x3000, 0x30FF), (0xFF00, 0xFFEF)]
    ranges += [(0, 0xD800), (0xE000, 0x110000), (10, 11)]
    clumps = (
        "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(30)))
        for _ in range(rng.randrange(60))
    )
    return "".join(clump * rng.choice((1, 1, 1, 9)) for clump in clumps)


@pytest.mark.parametrize("name", RULES)
class TestEveryRule:
    def test_is_a_frozen_dataclass_with_documented_thresholds(self, name):
        cls = RULES[name]
        assert dataclasses.is_dataclass(cls) and cls.__doc__
        rule = parse(cls, NEEDED.get(name, {}))
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(rule, "x", 1)  # noqa: B010
        assert set(schema.docs(cls)) == {f.name for f in dataclasses.fields(cls)}

    def test_travels_to_a_worker(self, name):
        rule = parse(RULES[name], NEEDED.get(name, {}))
        assert pickle.loads(pickle.dumps(rule)) == rule

    def test_keeps_sound_text(self, name):
        texts = [CHINESE, ENGLISH, CODE]
        if name in CHINESE_ONLY:
            texts = [CHINESE]
        elif name in CODE_ONLY:
            texts = [CODE]
        else:
            texts = [CHINESE, ENGLISH, CHINESE + ENGLISH]
        for text in texts:
            assert apply(name, text) == document(text), text

    @pytest.mark.parametrize("text", [*HOSTILE, *map(noise, range(20))], ids=lambda t: repr(t[:12]))
    def test_judges_every_text(self, name, text):
        before = document(text, {"url": "u"})
        rule = parse(RULES[name], NEEDED.get(name, {}))
        result = rule(before)
        assert rule(before) == result
        if isinstance(result, Drop):
            assert result.rule == name and result.detail and "\n" not in result.detail
        else:
            assert (result.id, result.meta) == (before.id, before.meta)
            assert result == before.with_text(result.text)
            assert name in EDITORS or result == before
            assert rule(result) == result


REFUSED = [
    ("min_length", {"characters": 0}, "characters=0 must be at least 1"),
    ("word_count", {"least": -1}, "least=-1 must be at least 0"),
    ("word_count", {"least": 9, "most": 8}, "least=9 is above most=8: nothing would pass"),
    ("sentences", {"least": -1}, "least=-1 must be at least 0"),
    ("mojibake", {"most": 1.5}, "most=1.5 must be between 0 and 1"),
    ("symbol_ratio", {"most": -0.1}, "most=-0.1 must be between 0 and 1"),
    ("digit_ratio", {"most": 2}, "most=2.0 must be between 0 and 1"),
    ("letter_ratio", {"least_words": 80}, "least_words=80.0 must be between 0 and 1"),
    ("letter_ratio", {"least_characters": -1}, "least_characters=-1.0 must be between 0 and 1"),
    ("alphanumeric_ratio", {"least": 25}, "least=25.0 must be between 0 and 1"),
    ("han_ratio", {"least": 70}, "least=70.0 must be between 0 and 1"),
    ("hash_ratio", {"most": -1}, "most=-1.0 must be at least 0"),
    ("url_ratio", {"most": 20}, "most=20.0 must be between 0 and 1"),
    ("curly_brackets", {"most": -1}, "most=-1.0 must be between 0 and 1"),
    ("mean_line_length", {"least": -1}, "least=-1.0 must be at least 0"),
    ("mean_line_length", {"most": 5}, "least=10.0 is above most=5.0: nothing would pass"),
    ("longest_line", {"most": 0}, "most=0 must be at least 1"),
    ("short_lines", {"characters": 0}, "characters=0 must be at least 1"),
    ("short_lines", {"characters_chinese": 0}, "characters_chinese=0 must be at least 1"),
    ("short_lines", {"most": 1.1}, "most=1.1 must be between 0 and 1"),
    ("bullet_lines", {"most": 90}, "most=90.0 must be between 0 and 1"),
    ("ellipsis_lines", {"most": 30}, "most=30.0 must be between 0 and 1"),
    ("end_punctuation", {"least": 12}, "least=12.0 must be between 0 and 1"),
    ("word_length", {"least": 11}, "least=11.0 is above most=10.0: nothing would pass"),
    ("word_length", {"least_clause": -1}, "least_clause=-1.0 must be at least 0"),
    ("word_length", {"most_clause": 1}, "least_clause=2.5 is above most_clause=1.0"),
    ("function_words", {"least": 2}, "least=2.0 must be between 0 and 1"),
    ("function_words", {"least_chinese": 2}, "least_chinese=2.0 must be between 0 and 1"),
    ("language", {"least": 65}, "least=65.0 must be between 0 and 1"),
    ("language", {"least_chinese": 65}, "least_chinese=65.0 must be between 0 and 1"),
    ("language", {"languages": ()}, "languages=() must name at least one, for example 'zh'"),
    ("language", {"languages": ("cn",)}, "languages has 'cn', which the model does not know"),
    ("sensitive_words", {"most": 2}, "most=2.0 must be between 0 and 1"),
    ("sensitive_words", {"words": ()}, "file='' and words=(): name a file of words, one a line"),
    ("sensitive_words", {"words": ("a", " ")}, "words has an empty one, which would match every"),
    ("sensitive_words", {"file": "no/such"}, "file='no/such' cannot be read: [Errno 2] No such"),
    ("duplicate_lines", {"most_lines": 30}, "most_lines=30.0 must be between 0 and 1"),
    ("duplicate_lines", {"most_characters": 30}, "most_characters=30.0 must be between 0 and 1"),
    ("top_ngrams", {"words": ((0, 0.1),)}, "words has (0, 0.1); write pairs (n, most), n at"),
    ("top_ngrams", {"characters": ((3, 2),)}, "characters has (3, 2.0); write pairs (n, most)"),
    ("duplicate_ngrams", {"words": ((5, -1),)}, "words has (5, -1.0); write pairs (n, most)"),
    ("duplicate_ngrams", {"characters": ((-5, 1),)}, "characters has (-5, 1.0); write pairs"),
    ("encoded_data", {"most": 50}, "most=50.0 must be between 0 and 1"),
    ("license", {"deny": ()}, "allow=() and deny=() would keep all; name licences in one of them"),
    ("license", {"allow": ("MIT",), "deny": ("MIT",)}, "allow and deny both have 'MIT'; take it"),
    ("notice_lines", {"characters": 0}, "characters=0 must be at least 1"),
    ("unfinished_lines", {"words": 0}, "words=0 must be at least 1"),
    ("unfinished_lines", {"characters": 0}, "characters=0 must be at least 1"),
    ("quality", {"least": 50}, "least=50.0 must be between 0 and 1"),
]


@pytest.mark.parametrize(("name", "params", "message"), REFUSED)
def test_refuses_a_threshold(name, params, message):
    with pytest.raises(ConfigError) as e:
        parse(RULES[name], NEEDED.get(name, {}) | params, "config.rules[0].params")
    assert str(e.value).startswith(f"config.rules[0].params: {message}")


def test_every_threshold_is_refused_somewhere():
    missing = {
        f"{name}.{field.name}"
        for name, cls in RULES.items()
        for field in dataclasses.fields(cls)
        if not any(name == n and field.name in message for n, _, message in REFUSED)
    }
    assert not missing


def test_scores_are_cut_by_the_last_rule():
    half = dataclasses.replace(document(CHINESE), quality=0.5)
    rule = RULES["quality"]
    assert isinstance(rule()(half), Document)
    drop = parse(rule, {"least": 0.6})(half)
    assert drop == Drop("quality", "quality 0.500, at least 0.6 wanted")


@pytest.mark.parametrize(
    ("name", "params", "text", "detail"),
    [
        ("min_length", {"characters": 5}, "一 二 三 四    \n\n", "4 characters, at least 5 wanted"),
        ("word_count", {}, "one two 三四五", "4 words, at least 50 wanted"),
        ("word_count", {"most": 60}, ENGLISH * 2, "248 words, at most 60 allowed"),
        ("sentences", {}, "Version 3.12 of x.y is out. 好！", "2 sentences, at least 3 wanted"),
    ],
)
def test_size(name, params, text, detail):
    assert reason(name, text, **params) == detail
    assert (
        reason(name, CHINESE, **params | {"most": 10_000} if "most" in params else params) is None
    )
