"""The tokenizer as both halves use it: encode, decode, its identity, and bytes per piece."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from jaxlm.errors import UserError

PROBE = "中文，English 123\tdef f(x):\r\n    return x  # ｆｕｌｌ　🙂\x00"
"""Its ids are part of the identity: two libraries that encode it differently are two tokenizers."""


class TokenizerError(UserError):
    """A tokenizer that cannot be used: names the file, the rule and the remedy."""


class Tokenizer:
    """A SentencePiece model with a lossless normalizer (`identity`).

    Control symbols (`<bos>` ...) are never produced from text: `encode` knows text only.
    """

    def __init__(self, path: Path):
        if not path.is_file():
            raise TokenizerError(f"{path}: no such tokenizer; train it with data_tools tokenizer")
        self.path = path
        try:
            self._spm = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as e:
            raise TokenizerError(f"{path}: not a SentencePiece model: {e}") from None
        self.vocab_size: int = self._spm.vocab_size()
        self.bos_id: int = self._spm.bos_id()
        self.eos_id: int = self._spm.eos_id()
        self.pad_id: int = self._spm.pad_id()
        for name, value in (("bos", self.bos_id), ("pad", self.pad_id)):
            if value < 0:
                raise TokenizerError(f"{path}: has no {name} piece; train it with one")
        if self.decode(self.encode(PROBE)) != PROBE:
            raise TokenizerError(
                f"{path}: does not give text back exactly; "
                "train it with normalization_rule_name=identity and byte_fallback"
            )

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS. `TokenizerError` if the text is not Unicode."""
        try:
            return self._spm.encode(text)
        except RuntimeError:
            raise TokenizerError(
                f"{text[:40]!r}: cannot be written as UTF-8; give text without broken bytes"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control symbols give nothing, broken UTF-8 gives U+FFFD."""
        return self._spm.decode([int(i) for i in ids])

    def piece_bytes_V(self) -> np.ndarray:
        """int32[V]: UTF-8 bytes of text that each piece stands for; 0 for control symbols."""
        spm = self._spm
        sizes = np.zeros(self.vocab_size, np.int32)
        for i in range(self.vocab_size):
            if spm.is_byte(i):
                sizes[i] = 1
            elif not (spm.is_control(i) or spm.is_unknown(i)):
                sizes[i] = len(spm.id_to_piece(i).replace("▁", " ").encode())
        return sizes

    def hash(self) -> str:
        """16 hex digits over pieces, scores, kinds, normalizer, encode flags and the probe's ids.

        Not over the file: its bytes change with the number of training threads.
        """
        model = sentencepiece_model_pb2.ModelProto.FromString(  # pyright: ignore
            self.path.read_bytes()
        )
        pieces = [(p.piece, round(p.score, 6), p.type) for p in model.pieces]
        n, t = model.normalizer_spec, model.trainer_spec
        rules = (n.name, n.add_dummy_prefix, n.remove_extra_whitespaces, n.escape_whitespaces)
        flags = (t.model_type, t.byte_fallback, t.split_digits, t.treat_whitespace_as_suffix)
        charsmap = hashlib.sha256(n.precompiled_charsmap).hexdigest()
        data = json.dumps([pieces, rules, flags, charsmap, self.encode(PROBE)])
        return hashlib.sha256(data.encode()).hexdigest()[:16]
