"""Cleaning rules that look at lines, and those that take lines out."""

import pytest

from data_tools.clean import sentence
from tests.data_tools.cleaning import CHINESE, CODE, ENGLISH, edited, reason

MENU = "首页\n新闻\n体育\n财经\n关于我们\n联系方式\n网站地图\n"
TEASERS = "春天来了，山上的花开得...\n专家提醒市民出行时…\n完整的一句话。\n"


@pytest.mark.parametrize(
    ("name", "params", "text", "detail"),
    [
        ("mean_line_length", {}, MENU, "2.9 characters a line, at least 10.0 wanted"),
        ("mean_line_length", {}, "\n \n", "0.0 characters a line, at least 10.0 wanted"),
        (
            "mean_line_length",
            {"most": 100.0},
            "x" * 300 + "\n\n" + "y" * 100,
            "200.0 characters a line, at most 100.0 allowed",
        ),
        (
            "longest_line",
            {},
            "a = 1\n" + "b=2;" * 400,
            "a line of 1600 characters, at most 1000 allowed",
        ),
        (
            "short_lines",
            {},
            MENU,
            "1.000 of the lines have at most 10 characters, at most 0.67 allowed",
        ),
        (
            "short_lines",
            {},
            "Home\nAbout us\nLog in\n" + ENGLISH[:90],
            "0.800 of the lines have at most 30 characters, at most 0.67 allowed",
        ),
        (
            "bullet_lines",
            {},
            "• 一\n- two\n  ● 三\n",
            "1.000 of the lines start with a bullet, at most 0.9 allowed",
        ),
        (
            "ellipsis_lines",
            {},
            TEASERS,
            "0.667 of the lines end in an ellipsis, at most 0.3 allowed",
        ),
        ("end_punctuation", {}, MENU, "0.000 of the lines end a sentence, at least 0.106 wanted"),
        (
            "end_punctuation",
            {"least": 0.5},
            "a\nb\nc.\n",
            "0.333 of the lines end a sentence, at l",
        ),
    ],
)
def test_reasons(name, params, text, detail):
    found = reason(name, text, **params)
    assert found and found.startswith(detail)


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("他走了。", True),
        ("真的吗？！", True),
        ("他说：“走吧。”", True),
        ("“走吧”。", True),
        ("（完。）", True),
        ("全角句点．", True),
        ("半角句点｡", True),
        ("等等……", True),
        ("the end.", True),
        ('He said "go!"', True),
        ("**really?**", True),
        ("下列各项：", False),
        ("首页", False),
        ("上一页，", False),
        ("price: 3", False),
        ("(see", False),
        ("”", False),
    ],
)
def test_ends_of_sentences(line, ends):
    assert sentence.ends_sentence(line) == ends


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("没有句号", 0),
        ("一。二！三？", 3),
        ("什么？！……好。", 2),
        ("Wait... what?! Yes.", 3),
        ("Version 3.12 of a.b is out. See http://x.org/y.html for it!", 2),
        ('"Go!" he said. (Then he left.)', 3),
    ],
)
def test_counts_of_sentences(text, count):
    assert sentence.count(text) == count


NOTICES = [
    "Please enable JavaScript to view the comments.",
    "JavaScript is disabled in your browser",
    "This site uses cookies to give you the best experience.",
    "By continuing you agree to our Privacy Policy",
    "Terms of Service",
    "© 2024 Example Inc. All rights reserved.",
    "请启用 JavaScript 后访问本站",
    "您的浏览器不支持Javascript",
    "本网站使用Cookie，继续浏览即表示同意",
    "隐私政策 | 用户协议 | 免责声明",
    "版权所有 © 某某公司",
    "京ICP备12345678号-1",
    "京公网安备 11010802012345号",
    "您的浏览器版本过低，请升级浏览器",
    "著作權聲明：版權所有",
]


@pytest.mark.parametrize("notice", NOTICES)
def test_notice_lines_go_and_all_else_stays(notice):
    text = f"\t第一段。 \n\n  {notice} \n\nif x:\n\treturn  1\n\n"
    assert edited("notice_lines", text) == "\t第一段。 \n\n\nif x:\n\treturn  1\n\n"


@pytest.mark.parametrize(
    "line",
    [
        "JavaScript was written in ten days, and it shows in its equality operators.",
        "The recipe makes forty cookies.",
        "这部法律规定，网站应当公开收集个人信息的规则。",
        "我们在浏览器里打开了这个页面。",
        "这些条款自公布之日起施行。",
        "他发表了一份声明。",
        CODE,
        "隐私政策" + "是网络服务提供者公开其处理个人信息规则的文件，" * 10,
    ],
)
def test_notice_lines_keep(line):
    assert edited("notice_lines", line) == line


def test_a_page_of_notices_goes():
    detail = reason("notice_lines", "版权所有\n\n隐私政策\n")
    assert detail == "nothing is left after 2 lines went"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("标题\n\n  他走了，没有回头。\n更多>>\n“好的。”\n", "\n  他走了，没有回头。\n“好的。”\n"),
        (
            "Title\nShe left the house.\nNo way!\nshe said, and\n\nthen (at last) it rained.)\n",
            "She left the house.\n\nthen (at last) it rained.)\n",
        ),
    ],
)
def test_unfinished_lines(text, expected):
    params = {"characters": 2} if "他" in text else {}
    assert edited("unfinished_lines", text, **params) == expected


def test_unfinished_lines_leave_prose_alone_and_drop_menus():
    assert edited("unfinished_lines", CHINESE) == CHINESE
    assert reason("unfinished_lines", MENU) == "nothing is left after 7 lines went"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Title\nLorem  ipsum dolor sit amet", "'Lorem  ipsum'"),
        ("单击此处添加标题\n单击此处编辑文本", "'单击此处添加标题'"),
        ("请在此处输入您的内容", "'请在此处输入您的内容'"),
    ],
)
def test_placeholder_text(text, said):
    assert reason("placeholder_text", text) == f"{said} stands where text should"


def test_placeholder_text_keeps_what_speaks_of_places():
    assert reason("placeholder_text", "在此处停车，请点击这里查看地图。lore ipsum") is None
