"""Repairs text that was decoded wrongly, and gives every text the same newlines."""

import re
from dataclasses import dataclass

import ftfy

from data_tools.document import Document, Drop

# What is typography and not damage stays: full-width forms and punctuation, curly quotes,
# ligatures, HTML entities (which code and pages about HTML mean literally).
CONFIG = ftfy.TextFixerConfig(
    unescape_html=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    normalization="NFC",
    explain=False,
)

# ftfy works line by line, and a line of these alone it leaves as it is: no encoding that it tries
# would make them of UTF-8's bytes, none is a control, and none composes with its neighbour.
SOUND = re.compile(
    "[\t\n\f -~·–—‘’“”…、-〟一-鿿！-～　]*",
)
LINE = re.compile("[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class UnicodeRepair:
    """ftfy's repairs that are safe for Chinese and for code.

    Mojibake is decoded again, control characters and terminal escapes go (tab, newline and form
    feed stay), every newline becomes a line feed, and characters are composed (NFC).
    """

    def __call__(self, document: Document) -> Document | Drop:
        lines = LINE.findall(document.text)
        text = "".join(
            line if SOUND.fullmatch(line) else ftfy.fix_text(line, CONFIG) for line in lines
        )
        if not text.strip():
            return Drop("unicode_repair", "nothing is left but white space")
        return document.with_text(text)
