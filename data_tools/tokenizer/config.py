"""Which tokenizer a build uses: one that it trains, or one that exists."""

import re
from dataclasses import dataclass
from typing import Literal

from data_tools import thresholds

RESERVED = re.compile(r"<(unk|bos|eos|pad|reserved_\d+|0x[0-9A-Fa-f]{2})>")
"""Pieces that a tokenizer has in any case, or for later use."""

MARKER = re.compile(r"(?=.*[A-Za-z\u4e00-\u9fff])(<.+>|\[.+\])")
"""No piece that is learned looks so: letters and signs are never joined."""

UNIGRAM_BYTES = (1 << 31) - 1
"""The trainer counts characters in 32 bits."""


@dataclass(frozen=True)
class TokenizerConfig:
    """A SentencePiece model that gives every text back exactly, or an existing tokenizer."""

    path: str = ""
    """An existing tokenizer: a SentencePiece model, or a directory or file of Hugging Face's
    (tokenizer.json); relative to the work directory, or absolute. Empty: one is trained; else the
    fields below from `kind` on say nothing."""
    bos: str = ""
    """Piece of an existing tokenizer that is to start each document; empty: the one it says."""
    pad: str = ""
    """Piece of an existing tokenizer that is to fill rows; empty: the one it says."""
    kind: Literal["bpe", "unigram"] = "bpe"
    """Model to train. The pieces of bpe do not depend on the order of the sample."""
    vocab_size: int = 64_000
    """Pieces, with the control symbols and the 256 bytes."""
    character_coverage: float = 0.9999
    """Share of the sample's characters that get pieces of their own; the rest are bytes. Of all
    characters: where half the sample is code, 0.9995 leaves 1% of a Chinese novel to bytes."""
    sample_bytes: int = 512 << 20
    """UTF-8 bytes to train on, shared by the types as the mixture says; a short type leaves its
    rest."""
    control_symbols: tuple[str, ...] = (
        "<system>",
        "<user>",
        "<assistant>",
        "<tool>",
        "<end>",
        "<tool_call>",
        "<tool_result>",
        "<think>",
        "<answer>",
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        "<fim_pad>",
        "<repo_name>",
        "<file_name>",
    )
    """Pieces that no text produces, after <unk>, <bos>, <eos> and <pad>: <name> or [name]."""
    reserved: int = 256
    """Control symbols in all: those named, and <reserved_0>, ... for later use."""

    def __post_init__(self) -> None:
        if (self.bos or self.pad) and not self.path:
            raise ValueError(
                f"bos={self.bos!r}, pad={self.pad!r} choose among the pieces of an existing "
                "tokenizer; name it in path, or leave them empty: one that is trained has <bos> "
                "and <pad>"
            )
        if not 0.98 <= self.character_coverage <= 1:
            raise ValueError(
                f"character_coverage={self.character_coverage} must be from 0.98 to 1; the trainer "
                "takes no other"
            )
        for symbol in self.control_symbols:
            fault = ""
            if not symbol:
                fault = "is empty"
            elif RESERVED.fullmatch(symbol):
                fault = "is reserved"
            elif self.control_symbols.count(symbol) > 1:
                fault = "is named twice"
            elif not MARKER.fullmatch(symbol):
                fault = "might be learned from text, too"
            if fault:
                raise ValueError(
                    f"control_symbols: {symbol!r} {fault}; each needs a name of its own, with "
                    "letters, written <name> or [name], other than <unk>, <bos>, <eos>, <pad>, "
                    "<reserved_N> and bytes such as <0x0A>"
                )
        thresholds.at_least(self, len(self.control_symbols), "reserved")
        thresholds.at_least(self, 1, "vocab_size", "sample_bytes")
        if self.kind == "unigram" and self.sample_bytes > UNIGRAM_BYTES:
            raise ValueError(
                f"sample_bytes={self.sample_bytes}: kind='unigram' takes at most {UNIGRAM_BYTES}; "
                "ask for less, or train bpe"
            )
