"""Tokenizers of other kinds, trained by Hugging Face's library on the same text, to compare with.

Their words are SentencePiece's, spaces before letters, where the kind leaves a choice; byte-level
BPE has GPT-2's and WordPiece BERT's. They are no tokenizers to train with: WordPiece loses spaces.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_tools.tokenizer.spans import Spans
from jaxlm.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORD = " *[^ ]+| +"
"""A word with the spaces before it."""
LONGEST = 16
"""Characters of a piece, as SentencePiece has it."""
UNKNOWN = "<unk>"
BYTES = tuple(f"<0x{b:02X}>" for b in range(256))


class Peer:
    """A tokenizer of Hugging Face's library, with what it does to a text laid open."""

    def __init__(self, tokenizer: "Tokenizer"):
        self._tokenizer = tokenizer
        self.vocab_size: int = tokenizer.get_vocab_size()
        self._unknown = [tokenizer.token_to_id(t) for t in (UNKNOWN, "[UNK]")]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids (int32[N]) of each text, on this thread."""
        encode = self._tokenizer.encode
        return [np.array(encode(t, add_special_tokens=False).ids, np.int32) for t in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """What the library makes of the ids."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def spans(self, text: str) -> Spans:
        """Where the tokens of a text lie in it."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        bounds_T2 = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        known_T = ~np.isin(encoded.ids, [i for i in self._unknown if i is not None])
        return Spans(bounds_T2[:, 0], bounds_T2[:, 1], known_T)


def bpe(texts: Iterable[str], vocab_size: int, reserved: Sequence[str]) -> Peer:
    """BPE over characters, with bytes for those that it lacks."""
    from tokenizers import Tokenizer, models, trainers

    tokenizer = _in_words(Tokenizer(models.BPE(unk_token=UNKNOWN, byte_fallback=True)))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[UNKNOWN, *reserved, *BYTES],
        max_token_length=LONGEST,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Peer(_without_added(tokenizer))


def unigram(texts: Iterable[str], vocab_size: int, reserved: Sequence[str]) -> Peer:
    """Unigram over characters, with bytes for those that it lacks."""
    from tokenizers import Tokenizer, models, trainers

    tokenizer = _in_words(Tokenizer(models.Unigram()))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=[UNKNOWN, *reserved, *BYTES],
        unk_token=UNKNOWN,
        max_piece_length=LONGEST,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Peer(_without_added(tokenizer))


def word_piece(texts: Iterable[str], vocab_size: int, reserved: Sequence[str]) -> Peer:
    """BERT's: words and punctuation, each Chinese character a word; case is kept."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # pyright: ignore[reportCallIssue]
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[UNK]", *reserved]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Peer(_without_added(tokenizer))


def byte_level_bpe(texts: Iterable[str], vocab_size: int, reserved: Sequence[str]) -> Peer:
    """GPT-2's: its words, and BPE over the bytes of their UTF-8."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[UNKNOWN, *reserved],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Peer(_without_added(tokenizer))


type Train = Callable[[Iterable[str], int, Sequence[str]], Peer]

PEERS: dict[str, Train] = {
    "BPE": bpe,
    "unigram": unigram,
    "WordPiece": word_piece,
    "byte-level BPE": byte_level_bpe,
}
"""Name -> training on texts, to so many pieces with those reserved ones."""


def check_library() -> None:
    """`UserError` where Hugging Face's library is not installed."""
    try:
        import tokenizers  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("--peers needs Hugging Face's library: pip install 'jaxlm[hf]'") from None


def _in_words(tokenizer: "Tokenizer") -> "Tokenizer":
    from tokenizers import Regex, decoders, pre_tokenizers

    words = pre_tokenizers.Split(Regex(WORD), "isolated")
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, digits])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _without_added(tokenizer: "Tokenizer") -> "Tokenizer":
    """The trained tokenizer without the trainer's matching of special pieces in text; the bytes of
    a unigram model get the score of its rarest piece, not that of a special one, and are used."""
    from tokenizers import Tokenizer

    data: dict[str, Any] = json.loads(tokenizer.to_str()) | {"added_tokens": []}
    model = data["model"]
    if model["type"] == "Unigram":
        least = min(score for _, score in model["vocab"])
        special = {*BYTES}
        model["vocab"] = [[p, least if p in special else s] for p, s in model["vocab"]]
        model["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(data))
