"""What stands before a number: a word that says what it is, or a URL that it is part of."""

import re

DASH = "\u2010-\u2014\uff0d-"
"""For the end of a character class: hyphens and dashes, full-width too."""

LOOSE = r"(?<![0-9A-Za-z_])(?<![0-9][-.])"
"""Before a number: no word and no other number that it continues. `\\b` would not do: Han letters
are word characters."""
END = r"(?![0-9A-Za-z_])(?!\.[0-9])"
"""After it."""

_NUMBERED = re.compile(
    r"""(?: 单号 | 订单 | 运单 | 编号 | 序号 | 编码 | 条码 | 流水号? | 序列号 | 货号 | 型号 | 批号
          | 批次号? | 文号 | 证书号 | 许可证号? | 学号 | 工号 | 房号 | 商品号 | 时间戳 | 版本号?
          | (?<![A-Za-z]) (?: order | serial | invoice | tracking | ticket | batch | item | part
              | sku | isbn | issn | doi | ean | cas | timestamp | version | build | model | ref
              | bug | issue | user | product | session | trace | request )
          | (?<![A-Za-z]) (?: u?id | (?<!card\ ) (?<!phone\ ) (?<!account\ ) no ) )
        [号码]? [\s_]* (?: no\.? | number | num | id | code )? ["']? \s*
        (?: 是 | 为 | is )? \s* [:：=\#.]? \s* ["']? $""",
    re.VERBOSE | re.IGNORECASE,
)
_URL = re.compile(r"(?:://|www\.)[!-~]*$")
_ASSIGNED = re.compile(r"[0-9A-Za-z_]\s*=\s*$")
_TOLD = re.compile(
    r"(?:tel|phone|mobile|cell|contact|fax|card|account)[a-z_]*[\"']?\s*[=:]\s*[\"']?$|wa\.me/$",
    re.IGNORECASE,
)


def labelled(text: str, start: int, label: re.Pattern[str], width: int = 24) -> bool:
    """Whether `label` is found among the `width` characters before `start`."""
    return label.search(text, max(0, start - width), start) is not None


def numbered(text: str, start: int) -> bool:
    """Whether the number that begins at `start` is called an order, a serial, a version ..., is the
    value of a variable, or is part of a URL; not if its key says telephone or card."""
    before = text[max(0, start - 32) : start]
    if _TOLD.search(before):
        return False
    url = _URL.search(text, max(0, start - 200), start)
    return bool(url or _NUMBERED.search(before) or _ASSIGNED.search(before))
