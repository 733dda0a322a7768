"""Cleaning rules: what they change, and the reason that each gives for a drop."""

import dataclasses

import pytest

from data_tools.clean import RULES
from data_tools.clean.min_length import MinLength
from data_tools.clean.symbol_ratio import SymbolRatio
from data_tools.clean.unicode_repair import UnicodeRepair
from data_tools.document import Document, Drop

PYTHON = 'def f(x):\n\tif x:\n\t    return "“ﬁ”，＝ &amp; \\r\\n"\n\n\treturn  None  # 中\n'


def document(text: str) -> Document:
    return Document.make(text, "s", "web", "a", 0, {})


def repaired(text: str) -> str:
    result = UnicodeRepair()(document(text))
    assert isinstance(result, Document)
    return result.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“你好”，（世界）：ＡＢＣ！　全角", "“你好”，（世界）：ＡＢＣ！　全角"),
        ("‘it’s’ — ﬁne… &lt;b&gt;", "‘it’s’ — ﬁne… &lt;b&gt;"),
        ("a\r\nb\rc\u2028d\u2029e", "a\nb\nc\nd\ne"),
        ("ä¸\xadæ–‡", "中文"),
        ("caf\u0065\u0301", "café"),
        ("a\x00b\x07\x1b[31mred\x1b[0m\ufeff", "abred"),
        ("一\t二\x0c三\n", "一\t二\x0c三\n"),
        (PYTHON, PYTHON),
    ],
)
def test_unicode_repair(text, expected):
    assert repaired(text) == expected


def test_unicode_repair_drops_what_was_only_control_characters():
    drop = UnicodeRepair()(document("\x00\x01\x02"))
    assert drop == Drop("unicode_repair", "nothing is left but white space")


def test_min_length_counts_what_is_read():
    rule = MinLength(characters=5)
    assert isinstance(rule(document("一二 三四\n五")), Document)
    drop = rule(document("一 二 三 四    \n\n\n"))
    assert drop == Drop("min_length", "4 characters, at least 5 wanted")


def test_symbol_ratio_takes_code_and_every_script_for_text():
    rule = SymbolRatio(most=0.0)
    for text in (
        PYTHON,
        "𠮷野家，日本語、한국어。العربية हिन्दी",
        "1 < 2 ~ `$x` ^ |",
        "∑ x² ≤ ￥5 × €3",
    ):
        assert isinstance(rule(document(text)), Document)


def test_symbol_ratio_drops_with_the_share():
    drop = SymbolRatio(most=0.3)(document("┌──┐ab🙂\ufffd☎\ue000"))
    assert drop == Drop("symbol_ratio", "0.800 of it symbols, at most 0.3 allowed")


@pytest.mark.parametrize("name", RULES)
class TestEveryRule:
    def test_is_a_frozen_dataclass_with_documented_defaults(self, name):
        assert dataclasses.is_dataclass(RULES[name])
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(RULES[name](), "x", 1)  # noqa: B010

    def test_does_not_damage_code(self, name):
        code = document(PYTHON * 5)
        assert RULES[name]()(code) == code

    def test_keeps_the_identity_of_what_it_changes(self, name):
        before = document("caf\u0065\u0301 \r\n" * 50)
        after = RULES[name]()(before)
        assert isinstance(after, Document) and after.id == before.id
        assert (after.content_hash == before.content_hash) == (after.text == before.text)
        again = RULES[name]()(after)
        assert again == after

    def test_names_itself_when_it_drops(self, name):
        drops = [r for t in ("\x00", "🙂" * 9) if isinstance(r := RULES[name]()(document(t)), Drop)]
        assert drops and all(d.rule == name and d.detail for d in drops)
