"""Tokenizers that are compared: one face for those that a build can use and for peers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from data_tools.tokenizer.spans import Spans, spelled
from jaxlm.data.tokenizer import open_tokenizer


class Coder(Protocol):
    """What is measured."""

    vocab_size: int

    def encode_batch(self, texts: Sequence[str], /) -> list[np.ndarray]:
        """Ids (int32[N]) of each text, on this thread."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """Text of ids, as far as the tokenizer gives it back."""
        ...

    def spans(self, text: str, /) -> Spans | None:
        """Where the tokens of a text lie in it; None where that cannot be told."""
        ...


class Opened:
    """A tokenizer that a build can use."""

    def __init__(self, path: Path):
        """Raises `TokenizerError`, as `open_tokenizer`."""
        self.tokenizer = open_tokenizer(path)
        self._spelling = self.tokenizer.spelling()
        self.vocab_size = self.tokenizer.vocab_size
        self.encode_batch = self.tokenizer.encode_batch
        self.decode = self.tokenizer.decode

    def spans(self, text: str) -> Spans | None:
        """None where decoding does more than to join pieces, or does not give the text back."""
        if self._spelling is None:
            return None
        return spelled(text, self.tokenizer.encode(text), self._spelling)
