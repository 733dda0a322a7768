"""Cleaning rules: each keeps a document, changes its text, or drops it with a reason."""

from data_tools.clean.alphanumeric_ratio import AlphanumericRatio
from data_tools.clean.bullet_lines import BulletLines
from data_tools.clean.curly_brackets import CurlyBrackets
from data_tools.clean.digit_ratio import DigitRatio
from data_tools.clean.duplicate_lines import DuplicateLines
from data_tools.clean.duplicate_ngrams import DuplicateNgrams
from data_tools.clean.ellipsis_lines import EllipsisLines
from data_tools.clean.encoded_data import EncodedData
from data_tools.clean.end_punctuation import EndPunctuation
from data_tools.clean.function_words import FunctionWords
from data_tools.clean.generated import Generated
from data_tools.clean.han_ratio import HanRatio
from data_tools.clean.hash_ratio import HashRatio
from data_tools.clean.language import Language
from data_tools.clean.letter_ratio import LetterRatio
from data_tools.clean.license import License
from data_tools.clean.longest_line import LongestLine
from data_tools.clean.mean_line_length import MeanLineLength
from data_tools.clean.min_length import MinLength
from data_tools.clean.mojibake import Mojibake
from data_tools.clean.notice_lines import NoticeLines
from data_tools.clean.placeholder_text import PlaceholderText
from data_tools.clean.quality import Quality
from data_tools.clean.rule import Rule
from data_tools.clean.sensitive_words import SensitiveWords
from data_tools.clean.sentences import Sentences
from data_tools.clean.short_lines import ShortLines
from data_tools.clean.symbol_ratio import SymbolRatio
from data_tools.clean.top_ngrams import TopNgrams
from data_tools.clean.traditional_to_simplified import TraditionalToSimplified
from data_tools.clean.unfinished_lines import UnfinishedLines
from data_tools.clean.unicode_repair import UnicodeRepair
from data_tools.clean.url_ratio import UrlRatio
from data_tools.clean.word_count import WordCount
from data_tools.clean.word_length import WordLength

RULES: dict[str, type[Rule]] = {
    # repair
    "unicode_repair": UnicodeRepair,
    "traditional_to_simplified": TraditionalToSimplified,
    # lines taken out
    "notice_lines": NoticeLines,
    "unfinished_lines": UnfinishedLines,
    # size
    "min_length": MinLength,
    "word_count": WordCount,
    "sentences": Sentences,
    # characters
    "mojibake": Mojibake,
    "symbol_ratio": SymbolRatio,
    "digit_ratio": DigitRatio,
    "letter_ratio": LetterRatio,
    "alphanumeric_ratio": AlphanumericRatio,
    "han_ratio": HanRatio,
    "hash_ratio": HashRatio,
    "url_ratio": UrlRatio,
    "curly_brackets": CurlyBrackets,
    # lines
    "mean_line_length": MeanLineLength,
    "longest_line": LongestLine,
    "short_lines": ShortLines,
    "bullet_lines": BulletLines,
    "ellipsis_lines": EllipsisLines,
    "end_punctuation": EndPunctuation,
    # words
    "word_length": WordLength,
    "function_words": FunctionWords,
    "language": Language,
    "sensitive_words": SensitiveWords,
    "placeholder_text": PlaceholderText,
    # repetition
    "duplicate_lines": DuplicateLines,
    "top_ngrams": TopNgrams,
    "duplicate_ngrams": DuplicateNgrams,
    # code
    "encoded_data": EncodedData,
    "generated": Generated,
    "license": License,
    # by the rules before it
    "quality": Quality,
}

EDITORS = ("unicode_repair", "traditional_to_simplified", "notice_lines", "unfinished_lines")
"""Rules that change the text: these cannot be scored."""
