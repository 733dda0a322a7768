"""Cleaning rules: each keeps a document, changes its text, or drops it with a reason."""

from data_tools.clean.min_length import MinLength
from data_tools.clean.rule import Rule
from data_tools.clean.symbol_ratio import SymbolRatio
from data_tools.clean.unicode_repair import UnicodeRepair

RULES: dict[str, type[Rule]] = {
    "unicode_repair": UnicodeRepair,
    "min_length": MinLength,
    "symbol_ratio": SymbolRatio,
}
