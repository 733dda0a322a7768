"""SentencePiece training: BPE, lossless, the same pieces for any number of workers."""

import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import sentencepiece

from data_tools.document import DataError
from data_tools.recipe import TokenizerConfig
from data_tools.stage import Input, Partition, Report, Stage
from jaxlm.data.tokenizer import Tokenizer

MODEL = "tokenizer.model"
THREADS = 16
"""A constant: the pieces do not depend on it, but it is written into the model file."""


@dataclass(frozen=True)
class TrainConfig:
    """What the model depends on, besides the sample."""

    tokenizer: TokenizerConfig
    quotas: Mapping[str, int]
    """Type -> most bytes of it to train on."""


def train_partition(partition: Partition[TrainConfig], out: Path) -> Report:
    """Writes tokenizer.model from the sample of all partitions.

    Raises `DataError` when the sample cannot give the vocabulary, or when the trainer skips a line.
    """
    config = partition.config
    sample = _Sample(partition.inputs["sample"], config.quotas)
    (out / MODEL).write_bytes(_train(config.tokenizer, sample))
    tokenizer = Tokenizer(out / MODEL)
    assert tokenizer.vocab_size == config.tokenizer.vocab_size
    return {
        "hash": tokenizer.hash(),
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "pad_id": tokenizer.pad_id,
        "sample_bytes": dict(sample.bytes),
    }


class _Sample:
    """Iterates over the sampled text once, up to each type's quota, and counts."""

    def __init__(self, files: tuple[Input, ...], quotas: Mapping[str, int]):
        self._files, self._quotas = files, quotas
        self.bytes: Counter[str] = Counter()
        self.lines = 0

    def __iter__(self) -> Iterator[str]:
        for file in self._files:
            with pq.ParquetFile(file.path) as table:
                for batch in table.iter_batches():
                    for row in batch.to_pylist():
                        size = len(row["text"].encode())
                        if self.bytes[row["type"]] + size <= self._quotas[row["type"]]:
                            self.bytes[row["type"]] += size
                            self.lines += 1
                            yield row["text"]


def _train(config: TokenizerConfig, sample: _Sample) -> bytes:
    model = io.BytesIO()
    spares = [f"<spare_{i}>" for i in range(config.spares)]
    # The trainer tells only its log what it skipped.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            with _native_stderr(log):
                sentencepiece.SentencePieceTrainer.Train(
                    sentence_iterator=iter(sample),
                    model_writer=model,
                    model_type="bpe",
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
                    # the space, which without a piece of its own would come back as its mark
                    required_chars="\u2581",
                    # control symbols are never matched in text; user-defined ones would be
                    control_symbols=[*config.control_symbols, *spares],
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
            raise DataError(_explain(config, sample, str(e))) from None
        log.seek(0)
        _check_loaded(log.read(), sample.lines)
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


def _explain(config: TokenizerConfig, sample: _Sample, message: str) -> str:
    text = f"{sum(sample.bytes.values())} bytes of sample text"
    asked = f"config.tokenizer.vocab_size={config.vocab_size}"
    if not sample.lines:
        return "no text is left to train the tokenizer on; see what the report says was dropped"
    if most := re.search(r"value <= (\d+)", message):
        return f"{asked}: {text} give at most {most[1]} pieces; ask for fewer, or add text"
    if least := re.search(r"\d+ vs (\d+)", message):
        return (
            f"{asked}: the characters of the sample alone, with bytes and control symbols, are "
            f"{least[1]} pieces; ask for more, or lower config.tokenizer.character_coverage"
        )
    return f"{asked}: the trainer failed: {message}"


def _check_loaded(log: str, lines: int) -> None:
    loaded = re.search(r"Loaded all (\d+) sentences", log)
    if loaded is None or int(loaded[1]) != lines:
        found = loaded[1] if loaded else "an unknown number"
        skipped = [line for line in log.splitlines() if "kipped" in line or "too long" in line]
        raise DataError(
            f"the tokenizer's trainer took {found} of {lines} pieces of text: {skipped[:3]}; "
            "pieces must be under 4,192 bytes, not empty and without U+2585"
        )


TRAIN = Stage("tokenizer", f"1 sentencepiece {sentencepiece.__version__}", train_partition)
