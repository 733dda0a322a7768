"""Documents for the tests of cleaning rules, and sound prose that every rule keeps."""

from typing import Any

from data_tools.clean import RULES
from data_tools.document import Document, Drop
from jaxlm.schema import parse

CHINESE = """春天的早晨，山里的雾还没有散，老人就背着竹篓出了门。他要去的是河对岸的茶园。
那里有他种了三十年的茶树。路上的石阶被露水打湿了，走起来要格外小心。
他一边走一边想，今年的雨水比往年多，茶叶的味道大概会淡一些。
到了茶园，已经有几个年轻人在采茶。他们看见老人，都停下来向他问好。
“您怎么又自己来了？”其中一个人笑着说。
老人摇摇头，说采茶是他一生的习惯，坐在家里反而不舒服。
于是大家继续干活，山谷里只听见鸟叫和手指折断嫩芽的声音。
中午的时候，太阳从云后面出来，整个山坡都亮了。老人坐在树下吃饭，看着远处的村子。
他心里觉得很安静，又想起年轻时和妻子一起种下第一批茶苗的那个春天。
"""
ENGLISH = """The old bridge at the end of the village had been closed for two years.
Then the council met to decide what should become of it.
Some of those who came wanted it to be rebuilt in stone, as it was before the war.
Others said that a footbridge would do, and that the money is better spent on the school.
The engineer listened to both sides and then explained that neither plan could begin soon.
For this the river had to be measured in spring and in autumn.
Nobody was happy with this answer, but everyone had to admit that it made sense.
The meeting ended with a vote to wait, and with a promise to keep the path along the bank open.
"""
CODE = '''"""Reads settings from a file."""

import json
from pathlib import Path


def load(path: Path) -> dict[str, str]:
    """The settings, or an error that names the file."""
    try:
        settings = json.loads(path.read_text())
    except ValueError as e:
        raise SystemExit(f"{path}: {e}") from e
    return {key.lower(): str(value) for key, value in settings.items()}
'''

NEEDED: dict[str, dict[str, Any]] = {
    "license": {"deny": ("GPL-3.0-only",)},
    "sensitive_words": {"words": ("赌博",)},
}
"""Parameters of the rules that cannot do without."""


def document(text: str, meta: dict[str, str] | None = None) -> Document:
    """A document of this text."""
    return Document.make(text, "s", "web", "a", 0, meta or {})


def apply(rule: str, text: str, **params: Any) -> Document | Drop:
    """What a rule makes of a text, its thresholds checked as those of a recipe are."""
    return parse(RULES[rule], NEEDED.get(rule, {}) | params)(document(text))


def reason(rule: str, text: str, **params: Any) -> str | None:
    """Why a rule drops a text; None when it does not."""
    result = apply(rule, text, **params)
    if isinstance(result, Drop):
        assert result.rule == rule
        return result.detail
    return None


def edited(rule: str, text: str, **params: Any) -> str:
    """The text that a rule makes of a text that it keeps."""
    result = apply(rule, text, **params)
    assert isinstance(result, Document)
    return result.text
