"""Small tokenizers in the manner of known models, trained on the same text."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.train import train_model

HAN = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜"
SENTENCE = "the model reads a token and learns to predict what follows all that came before"


def text(seed: int) -> str:
    """Chinese, English and code."""
    rng = random.Random(seed)
    words = rng.choices(SENTENCE.split(), k=20)
    return (
        f"{''.join(rng.choices(HAN + '，。', k=40))}。\r\n{' '.join(words)}.\n\n"
        f"def {words[0]}_{words[1]}({words[2]}):\n"
        f"\tif {words[3]} > {seed}:\n\t\treturn {words[4]}\n"
        f"    {words[5]} = ({words[6]}, {seed})\n"
    )


TEXTS = [text(seed) for seed in range(60)]
SMALL = TokenizerConfig(vocab_size=400, control_symbols=("<user>",), reserved=3)
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sentence_piece(directory: Path, kind: Literal["bpe", "unigram"]) -> Path:
    """As the build trains them."""
    path = directory / "tokenizer.model"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_bytes(train_model(replace(SMALL, kind=kind), TEXTS))
    return path


def dummy_prefix(directory: Path) -> Path:
    """As Llama 2's: a space before each text, no PAD, and markers among user-defined symbols."""
    path = directory / "llama.model"
    directory.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as model:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXTS),
            model_writer=model,
            model_type="bpe",
            vocab_size=400,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            byte_fallback=True,
            user_defined_symbols=["<|im_start|>", "\r\n"],
            minloglevel=1,
        )
    return path


def byte_level(directory: Path, special: Sequence[str] = ("<|endoftext|>", "<|im_start|>")) -> Path:
    """As Qwen's: NFC, byte-level BPE, markers among the special and the other added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens([AddedToken("<tool_call>"), AddedToken("    ")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special[0]} $A",
        special_tokens=[(special[0], tokenizer.token_to_id(special[0]))],
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding()
    return save(tokenizer, directory)


def metaspace(directory: Path, *, prefix: bool) -> Path:
    """As Mistral's or, with a space before each text, as Llama 2's: BPE with byte fallback."""
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*steps, decoders.Strip(content=" ", left=1)] if prefix else steps
    )
    tokenizer.train_from_iterator(
        (t[:300] for t in TEXTS),
        trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False),
    )
    path = save(tokenizer, directory)
    data = json.loads(path.read_text())
    data["added_tokens"] = data["added_tokens"][:3]
    path.write_text(json.dumps(data))
    return path


def word_piece(directory: Path) -> Path:
    """As BERT's: lower case, unknown words are [UNK]."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # pyright: ignore[reportCallIssue]
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.WordPieceTrainer(
            vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[PAD]"], show_progress=False
        ),
    )
    return save(tokenizer, directory)


def save(tokenizer: Any, directory: Path) -> Path:
    """Writes tokenizer.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory / "tokenizer.json"
