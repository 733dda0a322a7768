"""A tokenizer as the rest sees it: ids of a text and back, its identity, the bytes of pieces."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxlm.errors import UserError

PROBE = "中文，English 123\tdef f(x):\r\n    return x  # ｆｕｌｌ　🙂\x00"
"""Its ids are part of the identity: two libraries that encode it differently are two tokenizers."""

MARKER = re.compile(r"<.+>|\[.+\]", re.DOTALL)


class TokenizerError(UserError):
    """A tokenizer that cannot be used: names the file, the rule and the remedy."""


@dataclass(frozen=True)
class Spelling:
    """What each piece stands for: `data[starts[i] : starts[i + 1]]` are the bytes of piece i."""

    data: np.ndarray
    """uint8[N]: UTF-8 of all pieces end to end; a piece may be a part of a character."""
    starts: np.ndarray
    """int64[V + 1]"""


class Tokenizer(ABC):
    """Gives every text back exactly; no text becomes a control symbol (`<bos>` ...)."""

    path: Path
    vocab_size: int
    bos_id: int
    eos_id: int
    pad_id: int
    """Of the pieces that start, end and fill; -1: it names none."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS. `TokenizerError` if the text is not Unicode."""

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32[N] of each text, with one thread. `TokenizerError` as `encode`."""
        # a library's own call may start threads
        return [np.array(self.encode(text), np.int32) for text in texts]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control symbols give nothing, broken UTF-8 gives U+FFFD."""

    @abstractmethod
    def hash(self) -> str:
        """16 hex digits over all that decides the ids of a text, and the probe's ids.

        Not over the file: the same tokenizer may be written in more than one way.
        """

    @abstractmethod
    def controls(self) -> dict[str, int]:
        """Control symbol -> id: pieces that no text becomes, and that decode to nothing."""

    @abstractmethod
    def piece_bytes(self) -> list[bytes]:
        """UTF-8 of the text that each piece stands for; nothing for control symbols."""

    @abstractmethod
    def spells(self) -> bool:
        """Whether decoding does no more than to join `piece_bytes`."""

    def spelling(self) -> Spelling | None:
        """`decode` as look-ups: it joins the bytes of the pieces, and nothing else; None if it
        does more (drops a space at the start, for example)."""
        if not self.spells():
            return None
        pieces = self.piece_bytes()
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(p) for p in pieces], out=starts[1:])
        return Spelling(np.frombuffer(b"".join(pieces), np.uint8), starts)

    def piece_bytes_V(self) -> np.ndarray:
        """int32[V]: UTF-8 bytes of text that each piece stands for; 0 for control symbols."""
        return np.array([len(p) for p in self.piece_bytes()], np.int32)


def is_marker(piece: str) -> bool:
    """Whether a piece that a tokenizer matches whole in raw text is there to mark, not to spell.

    `<tool_call>`, `<|im_start|>` and `[INST]` are; words and runs of spaces are not. A text that
    holds such a name is encoded as any other: so nobody can write a marker into a document.
    """
    return MARKER.fullmatch(piece) is not None


def check(tokenizer: Tokenizer, remedy: str) -> None:
    """`TokenizerError` if it does not give a text back exactly."""
    found = tokenizer.decode(tokenizer.encode(PROBE))
    if found != PROBE:
        raise TokenizerError(
            f"{tokenizer.path}: does not give text back exactly: {PROBE!r} becomes {found!r}; "
            f"{remedy}"
        )


def not_unicode(text: str) -> TokenizerError:
    """The error for a text with half a character."""
    return TokenizerError(
        f"{text[:40]!r}: cannot be written as UTF-8; give text without broken bytes"
    )
