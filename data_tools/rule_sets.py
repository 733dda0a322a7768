"""Rules for the usual types of text, to take into a recipe.

`config.rules = RULE_SETS["web"] + RULE_SETS["code"]`. A threshold that is not written here is the
rule's own default, with its source beside it. Those written here were chosen on real text: a novel,
news, reviews, manual pages, package descriptions, language reference, dialogues, the standard
library; next to each stands what was seen or who uses it. Scored rules (with a weight) are stricter
forms: they drop nothing and lower the quality.
"""

from collections.abc import Mapping
from typing import Any

from data_tools.recipe import RuleConfig

type Params = Mapping[str, Any]

WEB: tuple[tuple[str, Params, float], ...] = (
    ("unicode_repair", {}, 0),
    ("mojibake", {}, 0),
    ("notice_lines", {}, 0),
    ("placeholder_text", {}, 0),
    ("word_count", {}, 0),
    ("symbol_ratio", {"most": 0.1}, 0),  # reviews with emoji have up to 0.05
    ("digit_ratio", {"most": 0.25}, 0),  # news about records and prices 0.21, tables of them 0.33
    ("letter_ratio", {"least_words": 0.7}, 0),  # FineWeb-2 0.735; descriptions of packages 0.75
    ("hash_ratio", {}, 0),
    ("url_ratio", {"most": 0.5}, 0),  # descriptions of packages, full of badges: half have 0.2
    ("curly_brackets", {"most": 0.01}, 0),  # C4 has 0; a page with an example or two 0.005
    ("mean_line_length", {}, 0),
    ("short_lines", {}, 0),
    ("bullet_lines", {}, 0),
    ("ellipsis_lines", {}, 0),
    ("end_punctuation", {}, 0),
    ("word_length", {}, 0),
    ("language", {}, 0),
    ("function_words", {}, 0),
    ("duplicate_lines", {}, 0),
    ("top_ngrams", {}, 0),
    ("duplicate_ngrams", {}, 0),
    # scored
    ("word_count", {"least": 100}, 1),
    ("sentences", {"least": 5}, 1),  # C4
    ("letter_ratio", {"least_words": 0.8, "least_characters": 0.75}, 1),  # Gopher; prose from 0.78
    ("url_ratio", {"most": 0.05}, 0.5),
    ("curly_brackets", {"most": 0.0}, 0.5),  # C4
    ("mean_line_length", {"least": 30.0}, 1),  # news and reviews from 30, menus below
    ("short_lines", {"most": 0.3}, 1),
    ("end_punctuation", {"least": 0.4}, 1),  # 0.9 of news and of reviews
    ("function_words", {"least": 0.15, "least_chinese": 0.1}, 1),  # 0.9 of prose
    ("duplicate_ngrams", {"characters": ((8, 0.1), (13, 0.05))}, 1),  # 0.95 of news
    ("language", {"least": 0.8, "least_chinese": 0.9}, 1),
)

BOOK: tuple[tuple[str, Params, float], ...] = (
    ("unicode_repair", {}, 0),
    ("mojibake", {}, 0),
    ("word_count", {"most": 2_000_000}, 0),  # long novels have a million
    ("symbol_ratio", {"most": 0.05}, 0),
    ("digit_ratio", {}, 0),
    ("letter_ratio", {"least_words": 0.7}, 0),
    ("end_punctuation", {"least": 0.05}, 0),  # verse, and lists of names and deeds
    ("language", {"least": 0.5}, 0),  # old spelling
    ("function_words", {}, 0),
    ("duplicate_lines", {}, 0),
    ("top_ngrams", {}, 0),
    ("duplicate_ngrams", {}, 0),
)

ENCYCLOPEDIA: tuple[tuple[str, Params, float], ...] = (
    ("unicode_repair", {}, 0),
    ("mojibake", {}, 0),
    ("word_count", {"least": 10}, 0),  # a short entry is still a fact
    ("symbol_ratio", {"most": 0.1}, 0),
    ("digit_ratio", {"most": 0.3}, 0),  # dates and measures
    ("letter_ratio", {"least_words": 0.5, "least_characters": 0.5}, 0),  # formulas, grammars
    ("language", {"least": 0.4, "least_chinese": 0.4}, 0),  # foreign names, formulas
    ("function_words", {}, 0),
    ("duplicate_lines", {}, 0),
    # entries are made from a pattern
    ("duplicate_ngrams", {"words": ((10, 0.2),), "characters": ((13, 0.3),)}, 0),
)

CODE: tuple[tuple[str, Params, float], ...] = (
    ("unicode_repair", {}, 0),
    ("generated", {}, 0),
    ("min_length", {"characters": 50}, 0),
    ("longest_line", {}, 0),
    ("mean_line_length", {"least": 5.0, "most": 100.0}, 0),  # the upper bound: StarCoder
    ("alphanumeric_ratio", {}, 0),
    ("symbol_ratio", {"most": 0.1}, 0),
    ("digit_ratio", {"most": 0.3}, 0),  # tables of numbers; the standard library has up to 0.34
    ("mojibake", {"most": 0.05}, 0),  # a test of decoders is code too
    ("encoded_data", {}, 0),
)

DIALOGUE: tuple[tuple[str, Params, float], ...] = (
    ("unicode_repair", {}, 0),
    ("mojibake", {}, 0),
    ("min_length", {"characters": 10}, 0),
    ("symbol_ratio", {"most": 0.3}, 0),  # emoji are part of it
    ("digit_ratio", {"most": 0.3}, 0),
    ("duplicate_lines", {"most_lines": 0.5, "most_characters": 0.5}, 0),  # "好的。" comes again
    ("language", {"least": 0.3, "least_chinese": 0.3}, 0),  # short texts score low
)

RULE_SETS: dict[str, tuple[RuleConfig, ...]] = {
    kind: tuple(RuleConfig(name, params, (kind,), weight) for name, params, weight in rules)
    for kind, rules in {
        "web": WEB,
        "book": BOOK,
        "encyclopedia": ENCYCLOPEDIA,
        "code": CODE,
        "dialogue": DIALOGUE,
    }.items()
}
"""Source type -> its rules, in order."""
