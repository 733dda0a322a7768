"""Cleaning rules that repair: Unicode, mojibake beyond repair, traditional Chinese."""

import random

import ftfy
import pytest

from data_tools.clean.traditional_to_simplified import variant_of
from data_tools.clean.unicode_repair import CONFIG, SOUND
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, edited, reason

PYTHON = 'def f(x):\n\tif x:\n\t    return "“ﬁ”，＝ &amp; \\r\\n"\n\n\treturn  None  # 中\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“你好”，（世界）：ＡＢＣ！　全角", "“你好”，（世界）：ＡＢＣ！　全角"),
        ("‘it’s’ — ﬁne… &lt;b&gt;", "‘it’s’ — ﬁne… &lt;b&gt;"),
        ("a\r\nb\rc\u2028d\u2029e", "a\nb\nc\nd\ne"),
        ("ä¸\xadæ–‡", "中文"),
        ("好\nä¸\xadæ–‡\n好", "好\n中文\n好"),
        ("caf\u0065\u0301", "café"),
        ("a\x00b\x07\x1b[31mred\x1b[0m\ufeff", "abred"),
        ("一\t二\x0c三\n", "一\t二\x0c三\n"),
        (PYTHON, PYTHON),
    ],
)
def test_unicode_repair(text, expected):
    assert edited("unicode_repair", text) == expected


def test_unicode_repair_drops_what_was_only_control_characters():
    assert reason("unicode_repair", "\x00\x01\x02") == "nothing is left but white space"


def test_the_lines_that_ftfy_is_spared_are_those_that_it_keeps():
    sound = [chr(i) for i in range(0x10000) if not 0xD800 <= i < 0xE000 and SOUND.fullmatch(chr(i))]
    rng = random.Random(0)
    marks = [c for c in sound if not "一" <= c <= "鿿"]
    for size in (1, 2, 3, 5, 8, 40):
        for _ in range(300):
            text = "".join(rng.choices(rng.choice((sound, marks)), k=size))
            assert ftfy.fix_text(text, CONFIG) == text
    for line in ("\r", "\x1b", "é", "ﬁ", "\ufeff", "\uf900", "\u3099", "ä¸", "\ufffd", "🙂"):
        assert not SOUND.fullmatch(line)


def test_the_rest_comes_out_as_ftfy_makes_it():
    rng = random.Random(1)
    damaged = [text.encode().decode("cp1252", "replace") for text in (CHINESE, "naïve café — “x”")]
    lines = [*CHINESE.split("\n"), *ENGLISH.split("\n"), *damaged, "a\r", "\x1b[1mb", "e\u0301", ""]
    for _ in range(50):
        text = "\n".join(rng.choices(lines, k=6)) + "x"
        assert edited("unicode_repair", text) == ftfy.fix_text(text, CONFIG)


@pytest.mark.parametrize(
    "damaged",
    [
        CHINESE.encode().decode("gbk", "replace"),
        CHINESE.encode().decode("gbk", "ignore"),
        CHINESE.encode("gb18030").decode("latin-1"),
        CHINESE.encode("gb18030").decode("cp1252", "replace"),
        CHINESE.encode("gb18030").decode("utf-8", "replace"),
        CHINESE.encode("big5", "ignore").decode("gbk", "replace"),
        CHINESE.encode().decode("latin-1"),
        CHINESE.replace("的", "锟斤拷"),
        "烫烫烫烫屯屯屯屯" * 9,
        "the caf\u00c3\u00a9 na\u00c3\u00afve " * 9,
    ],
)
def test_mojibake(damaged):
    detail = reason("mojibake", damaged)
    assert detail and detail.endswith(" of it wrongly decoded, at most 0.01 allowed")


@pytest.mark.parametrize(
    "sound",
    [
        CHINESE,
        CODE,
        "Où êtes-vous allés à Noël? Ça coûte très cher, même à l'Élysée. ÉTÉ ÂGÉ ÎLE" * 3,
        "Größe, Übermut, Äußerung, naïve façade, Ångström, señor ¿qué? ¡sí!" * 3,
        "涓涓细流，浜海之城，璇玑，浠水县。" * 5,
        "乱码“锟斤拷”是怎么来的？" + CHINESE * 2,
    ],
)
def test_mojibake_keeps(sound):
    assert reason("mojibake", sound) is None


@pytest.mark.parametrize(
    ("variant", "text", "expected"),
    [
        ("tw2s", "他在裡面寫著作，為了紀念著名的學者。", "他在里面写著作，为了纪念著名的学者。"),
        ("hk2s", "他住在衞生署裏面，説這羣人很好。", "他住在卫生署里面，说这群人很好。"),
        ("t2s", "漢語與國際關係的發展", "汉语与国际关系的发展"),
        ("", "他在里面写著作，为了纪念著名的学者。", "他在里面写著作，为了纪念著名的学者。"),
        ("", "这本书的原名是《國際關係》，他说很好看，我们也买了。", None),
        ("", "これは漢字と仮名の文章です。東京の鉄道會社、經濟學。", None),
        (
            "tw2s",
            "鮮の味餐廳的麵條與湯都很好吃，價錢也不貴。",
            "鲜の味餐厅的面条与汤都很好吃，价钱也不贵。",
        ),
        ("", "plain English", None),
        ("", "", None),
    ],
)
def test_traditional_to_simplified(variant, text, expected):
    assert variant_of(text) == variant
    assert edited("traditional_to_simplified", text) == (text if expected is None else expected)


def test_what_is_not_chinese_passes_the_conversion():
    text = f"{CODE}\n𠮷🙂 tab\t é\r\n國際關係\n"
    converted = edited("traditional_to_simplified", text)
    assert converted == text.replace("國際關係", "国际关系")
