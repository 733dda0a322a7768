"""The rules of each type of text: what they keep, what they drop, and why."""

import pytest

from data_tools.clean.partition import CleanConfig, NamedRule, clean
from data_tools.document import Document, Drop
from data_tools.recipe import Recipe
from data_tools.rule_sets import RULE_SETS
from data_tools.source import SourceConfig
from tests.data_tools import test_clean_code, test_clean_lines, test_clean_words
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, document

CONFIGS = {
    kind: CleanConfig(
        tuple(NamedRule(r.name, r.build(f"{kind}[{i}]"), r.weight) for i, r in enumerate(rules)),
        None,
        (),
    )
    for kind, rules in RULE_SETS.items()
}


def verdict(kind: str, text: str) -> str:
    """The rule that drops a text; empty when it is kept, as it is."""
    result = clean(document(text), CONFIGS[kind])
    if isinstance(result, Document):
        assert result.text == text
        return ""
    _, drop = result
    assert isinstance(drop, Drop)
    return drop.rule


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("web", CHINESE),
        ("web", ENGLISH),
        ("web", CHINESE + ENGLISH),
        ("book", CHINESE * 1),
        ("book", ENGLISH),
        ("encyclopedia", CHINESE),
        ("encyclopedia", "Pi is the ratio of the circumference of a circle to its diameter.\n"),
        (
            "encyclopedia",
            "π（圆周率）是圆的周长与直径的比值，约为3.14159，在数学和物理学中很常见。\n",
        ),
        ("code", CODE),
        ("dialogue", "你好，请问现在可以退货吗？\n好的。\n谢谢！\n好的。\n"),
    ],
)
def test_sound_text_is_kept(kind, text):
    assert verdict(kind, text) == ""


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("mojibake", CHINESE.encode().decode("gbk", "replace")),
        ("placeholder_text", "Lorem ipsum dolor sit amet, consectetur. " * 9),
        ("word_count", "暂无评论"),
        ("mean_line_length", test_clean_lines.MENU * 12),
        ("word_length", test_clean_words.wall(test_clean_words.KEYWORDS, "，", "。") * 2),
        ("function_words", test_clean_words.wall(test_clean_words.KEYWORDS, "", "。")),
        (
            "url_ratio",
            "\n".join(f"http://www.spam.example/{'x' * i}/a.html。" for i in range(60)) + ENGLISH,
        ),
        ("duplicate_lines", CHINESE * 3),
        ("digit_ratio", "\n".join(f"row {i * 7919} {i * 104729} name of thing" for i in range(60))),
        (
            "language",
            "Съешь же ещё этих мягких французских булок, да выпей чаю.\n" * 1
            + "".join(
                f"Это было {word} и все люди были рады этому.\n"
                for word in ("там", "вчера", "давно", "здесь", "снова", "потом", "тогда", "утром")
            ),
        ),
    ],
)
def test_bad_pages_go(rule, text):
    assert verdict("web", text) == rule


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("longest_line", "var a={};" * 200),
        ("encoded_data", test_clean_code.BASE64),
        ("digit_ratio", "x = [\n" + "    48611, 7919, 104729, 1299709,\n" * 40 + "]\n"),
        ("alphanumeric_ratio", ("+" + "-" * 20) * 2 + "\n" + "| ** |   | ## |\n" * 30),
        ("min_length", "# empty\n"),
    ],
)
def test_bad_code_goes(rule, text):
    assert verdict("code", text) == rule


def test_the_score_of_a_page_falls_with_its_faults():
    prose = clean(document(CHINESE), CONFIGS["web"])
    assert isinstance(prose, Document) and prose.quality == 1.0 and "faults" not in prose.meta
    lines = "\n".join(f"{line}\n相关阅读{n}" for n, line in enumerate(CHINESE.split("\n")))
    listed = clean(document(lines), CONFIGS["web"])
    assert isinstance(listed, Document)
    assert listed.quality <= 0.8 and "short_lines" in listed.meta["faults"]


def test_sets_go_into_a_recipe():
    sources = tuple(SourceConfig(k, k, "jsonl", ".", ("*.jsonl",)) for k in RULE_SETS)
    rules = tuple(rule for rules in RULE_SETS.values() for rule in rules)
    recipe = Recipe(sources=sources, rules=rules)
    for kind, chosen in RULE_SETS.items():
        assert len(recipe.rules_for(kind)) == len(chosen)
