"""Where sentences end, in Chinese and elsewhere."""

import re

ENDS = (".", "!", "?", "…", "。", "！", "？", "｡", "．")
CLOSERS = "\"'”’」』）)】》〉]］*_"
"""What may follow the mark that ends a sentence: quotes, brackets, Markdown's emphasis."""

_END = re.compile(
    r"[。！？…｡．]+"
    r"|(?<![.!?])[.!?]++(?=[\"'”’)\]]*(?:\s|$))"  # a point inside a number or a name ends nothing
)


def ends_sentence(line: str) -> bool:
    """Whether a stripped line ends as a sentence does."""
    return line.endswith(ENDS) or line.rstrip(CLOSERS).endswith(ENDS)


def count(text: str) -> int:
    """Sentences in a text."""
    return len(_END.findall(text))
