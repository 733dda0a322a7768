"""SentencePiece models."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from jaxlm.data.abstract_tokenizer import (
    PROBE,
    Tokenizer,
    TokenizerError,
    check,
    is_marker,
    not_unicode,
)

ModelProto = sentencepiece_model_pb2.ModelProto  # pyright: ignore[reportAttributeAccessIssue]
Piece = ModelProto.SentencePiece


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model with a lossless normalizer (`identity`)."""

    def __init__(self, path: Path):
        self.path = path
        self.model = read_model(path)
        try:
            self._spm = sentencepiece.SentencePieceProcessor(
                model_proto=self.model.SerializeToString()
            )
        except (RuntimeError, ValueError) as e:
            raise TokenizerError(f"{path}: not a SentencePiece model: {e}") from None
        self.vocab_size: int = self._spm.vocab_size()
        self.bos_id: int = self._spm.bos_id()
        self.eos_id: int = self._spm.eos_id()
        self.pad_id: int = self._spm.pad_id()
        check(self, "train it with normalization_rule_name=identity and byte_fallback")

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS. `TokenizerError` if the text is not Unicode."""
        try:
            return self._spm.encode(text)
        except (RuntimeError, ValueError):
            raise not_unicode(text) from None

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32[N] of each text, with one thread. `TokenizerError` as `encode`."""
        try:
            return self._spm.encode(list(texts), num_threads=1, return_type="numpy")
        except (RuntimeError, TypeError, ValueError):
            return super().encode_batch(texts)  # the error of the one that is to blame

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control symbols give nothing, broken UTF-8 gives U+FFFD."""
        return self._spm.decode([int(i) for i in ids])

    def controls(self) -> dict[str, int]:
        """Control symbol -> id: pieces that no text becomes, and that decode to nothing."""
        pieces = enumerate(self.model.pieces)
        return {p.piece: i for i, p in pieces if p.type == Piece.CONTROL}

    def piece_bytes(self) -> list[bytes]:
        """UTF-8 of the text that each piece stands for; nothing for control symbols."""
        return [_bytes(piece, self.model.trainer_spec.unk_surface) for piece in self.model.pieces]

    def spells(self) -> bool:
        """Not with a space put before each text, nor with another map back to text."""
        normalizer = self.model.normalizer_spec
        return not (
            normalizer.add_dummy_prefix
            or normalizer.remove_extra_whitespaces
            or self.model.denormalizer_spec.precompiled_charsmap
        )

    def hash(self) -> str:
        """16 hex digits over pieces, scores, kinds, normalizer, encode flags and the probe's ids.

        Not over the file: its bytes change with the number of training threads.
        """
        pieces = [(p.piece, round(p.score, 6), p.type) for p in self.model.pieces]
        n, t = self.model.normalizer_spec, self.model.trainer_spec
        rules = (n.name, n.add_dummy_prefix, n.remove_extra_whitespaces, n.escape_whitespaces)
        flags = (t.model_type, t.byte_fallback, t.split_digits, t.treat_whitespace_as_suffix)
        charsmap = hashlib.sha256(n.precompiled_charsmap).hexdigest()
        data = json.dumps([pieces, rules, flags, charsmap, self.encode(PROBE)])
        return hashlib.sha256(data.encode()).hexdigest()[:16]


def read_model(path: Path) -> Any:
    """The `ModelProto` of a file; markers that it would find in text are control symbols here."""
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError as e:
        raise TokenizerError(f"{path}: not a SentencePiece model: {e}") from None
    if not model.pieces:
        raise TokenizerError(f"{path}: not a SentencePiece model: it has no pieces")
    # protobuf gives a string that is not UTF-8 as bytes
    strings = (model.normalizer_spec.name, model.trainer_spec.unk_surface)
    for string in (*(piece.piece for piece in model.pieces), *strings):
        if isinstance(string, bytes):
            raise TokenizerError(f"{path}: is damaged: {string!r} in it is not UTF-8; restore it")
    for piece in model.pieces:
        if piece.type == Piece.USER_DEFINED and is_marker(piece.piece):
            piece.type = Piece.CONTROL
    return model


def _bytes(piece: Any, unknown: str) -> bytes:
    match piece.type:
        case Piece.CONTROL:
            return b""
        case Piece.UNKNOWN:
            return unknown.encode()
        case Piece.BYTE:
            return bytes([int(piece.piece[1:-1], 16)])  # <0x0A>
        case _:
            return piece.piece.replace("\u2581", " ").encode()
