"""SentencePiece training: lossless, and the same pieces for any number of workers."""

import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow.compute as pc
import sentencepiece

from data_tools.document import DataError
from data_tools.row_groups import row_groups
from data_tools.stage import Input, Partition, Report, Stage
from data_tools.tokenizer import memory
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.sample import PIECE_BYTES, SCHEMA
from data_tools.tokenizer.words import BREAK, cut
from jaxlm.data.tokenizer import open_tokenizer

MODEL = "tokenizer.model"
THREADS = 16
"""A constant: the pieces of unigram depend on it, and every model file names it."""


@dataclass(frozen=True)
class TrainConfig:
    """What the model depends on, besides the sample."""

    tokenizer: TokenizerConfig
    quotas: Mapping[str, int]
    """Type -> most bytes of it to train on."""


def train_partition(partition: Partition[TrainConfig], out: Path) -> Report:
    """Writes tokenizer.model from the sample of all partitions.

    Raises `DataError` when the sample cannot give the vocabulary, when the training does not fit in
    memory, or when the trainer skips a line.
    """
    config = partition.config
    files = partition.inputs["sample"]
    available = memory.available_bytes()
    predicted = memory.check_fits(config.tokenizer, _size(files), available)
    sample = _Sample(files, config.quotas)
    with memory.measured() as peak:
        (out / MODEL).write_bytes(train_model(config.tokenizer, sample))
    tokenizer = open_tokenizer(out / MODEL)
    assert tokenizer.vocab_size == config.tokenizer.vocab_size
    return {
        "kind": config.tokenizer.kind,
        "hash": tokenizer.hash(),
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "pad_id": tokenizer.pad_id,
        "sample_bytes": dict(sample.bytes),
        "predicted_bytes": predicted,
        "peak_bytes": peak.bytes,
    }


def _size(files: Iterable[Input]) -> memory.Size:
    size = memory.Size(0, 0)
    for table in row_groups(files, ["text"]):
        in_bytes, characters = (
            pc.call_function("sum", [pc.call_function(name, [table["text"]])]).as_py()
            for name in ("binary_length", "utf8_length")
        )
        size = memory.Size(size.bytes + in_bytes, size.characters + characters)
    return size


class _Sample:
    """Iterates over the sampled text once, up to each type's quota, and counts."""

    def __init__(self, files: tuple[Input, ...], quotas: Mapping[str, int]):
        self._files, self._quotas = files, quotas
        self.bytes: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        for table in row_groups(self._files, SCHEMA.names):
            for row in table.to_pylist():
                size = len(row["text"].encode())
                if self.bytes[row["type"]] + size <= self._quotas[row["type"]]:
                    self.bytes[row["type"]] += size
                    yield row["text"]


class Counted:
    """Texts, counted as they go by."""

    def __init__(self, texts: Iterable[str]):
        self._texts = texts
        self.pieces = self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.pieces += 1
            self.bytes += len(text.encode())
            yield text


def train_model(config: TokenizerConfig, texts: Iterable[str]) -> bytes:
    """The model file trained on texts that `sample.pieces` has cut.

    Raises `DataError` when they cannot give the vocabulary, or when the trainer skips one.
    """
    model, counted = io.BytesIO(), Counted(texts)
    in_words = config.kind == "bpe"  # unigram would learn no runs of spaces from cut text
    reserved = config.reserved - len(config.control_symbols)
    # The trainer tells only its log what it skipped.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            with _native_stderr(log):
                sentencepiece.SentencePieceTrainer.Train(
                    sentence_iterator=map(cut, counted) if in_words else iter(counted),
                    model_writer=model,
                    model_type=config.kind,
                    vocab_size=config.vocab_size,
                    character_coverage=config.character_coverage,
                    num_threads=THREADS,
                    # lossless: every character, space and newline comes back
                    normalization_rule_name="identity",
                    remove_extra_whitespaces=False,
                    add_dummy_prefix=False,
                    allow_whitespace_only_pieces=True,
                    byte_fallback=True,
                    split_digits=True,
                    # where pieces end: at the words of `cut`, or at the borders of scripts
                    split_by_unicode_script=not in_words,
                    pretokenization_delimiter=BREAK if in_words else "",
                    max_sentence_length=4 * PIECE_BYTES,  # with the breaks
                    # pieces in any case: rare characters are bytes, and the space would come back
                    # as its mark
                    required_chars="\u2581\n\t",
                    # control symbols are never matched in text; user-defined ones would be
                    control_symbols=[
                        *config.control_symbols,
                        *(f"<reserved_{i}>" for i in range(reserved)),
                    ],
                    unk_id=0,
                    bos_id=1,
                    eos_id=2,
                    pad_id=3,
                    unk_piece="<unk>",
                    bos_piece="<bos>",
                    eos_piece="<eos>",
                    pad_piece="<pad>",
                    minloglevel=0,  # its log is read below, and the level outlives a training
                )
        except (RuntimeError, ValueError) as e:
            raise DataError(_explain(config, counted, str(e))) from None
        log.seek(0)
        _check_loaded(log.read(), counted.pieces)
    return model.getvalue()


@contextmanager
def _native_stderr(file: IO[str]) -> Iterator[None]:
    """Sends what C++ writes to descriptor 2 into a file.

    The library's own `logstream` redirects sys.stderr, which is another descriptor under pytest.
    """
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _explain(config: TokenizerConfig, sample: Counted, message: str) -> str:
    text = f"{sample.bytes} bytes of sample text"
    asked = f"config.tokenizer.vocab_size={config.vocab_size}"
    if not sample.pieces:
        return (
            f"config.tokenizer.sample_bytes={config.sample_bytes}: gives no piece of text to train "
            f"on, which has up to {PIECE_BYTES:,} bytes; ask for more"
        )
    if most := re.search(r"value <= (\d+)", message):
        return f"{asked}: {text} give at most {most[1]} pieces; ask for fewer, or add text"
    if least := re.search(r"\d+ vs (\d+)", message):
        return (
            f"{asked}: the characters of the sample alone, with bytes and control symbols, are "
            f"{least[1]} pieces; ask for more, or lower config.tokenizer.character_coverage"
        )
    return f"{asked}: the trainer failed: {message}"


def _check_loaded(log: str, pieces: int) -> None:
    loaded = re.search(r"Loaded all (\d+) sentences", log)
    if loaded is None or int(loaded[1]) != pieces:
        found = loaded[1] if loaded else "an unknown number"
        skipped = [line for line in log.splitlines() if "kipped" in line or "too long" in line]
        raise DataError(
            f"the tokenizer's trainer took {found} of {pieces} pieces of text: {skipped[:3]}; "
            f"pieces must be under {4 * PIECE_BYTES:,} bytes, not empty and without U+2585"
        )


TRAIN = Stage("tokenizer", f"2 sentencepiece {sentencepiece.__version__}", train_partition)
