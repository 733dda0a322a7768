"""Drops pages that were never filled in."""

import re
from dataclasses import dataclass

from data_tools.document import Document, Drop

PLACEHOLDER = re.compile(
    r"lorem\s+ipsum"
    r"|(?:单击|點擊|点击|请在|在)?(?:此处|這裡|这里|此處)(?:添加|输入|填写|编辑|輸入)"
    r"(?:您的)?(?:正文|文字|文本|标题|内容|內容|標題)",
    re.IGNORECASE,
)


HINTS = ("lorem", "此处", "此處", "这里", "這裡")
"""One of them is in all of these; a plain search is faster."""


@dataclass(frozen=True)
class PlaceholderText:
    """C4's rule on "lorem ipsum", and what Chinese templates say in its place."""

    def __call__(self, document: Document) -> Document | Drop:
        text = document.text.lower()
        if any(hint in text for hint in HINTS) and (found := PLACEHOLDER.search(document.text)):
            return Drop("placeholder_text", f"{found.group()!r} stands where text should")
        return document
