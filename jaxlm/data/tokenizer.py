"""Opens a tokenizer, whoever made it."""

from pathlib import Path

from jaxlm.data.abstract_tokenizer import PROBE, Spelling, Tokenizer, TokenizerError
from jaxlm.data.huggingface_tokenizer import HuggingFaceTokenizer
from jaxlm.data.sentencepiece_tokenizer import SentencePieceTokenizer

__all__ = ["PROBE", "Spelling", "Tokenizer", "TokenizerError", "open_tokenizer"]


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a SentencePiece model, a tokenizer.json, or a directory with one.

    Raises `TokenizerError` for what is none, does not give text back exactly, or lets a text
    become a control symbol.
    """
    if not path.exists():
        raise TokenizerError(
            f"{path}: no such tokenizer; train one with python -m data_tools tokenizer train, or "
            "name one that exists"
        )
    if path.is_dir() or path.suffix == ".json":
        return HuggingFaceTokenizer(path)
    return SentencePieceTokenizer(path)
