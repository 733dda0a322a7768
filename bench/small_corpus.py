"""A small corpus: shards and a manifest as `data_tools` writes them, in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import sentencepiece
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from jaxlm.data import manifest as manifests
from jaxlm.data.manifest import Manifest, Mixture, Shard, Split
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticRows
from jaxlm.data.tokenizer import open_tokenizer

TEXT = (
    "中文的句子，从左到右。这是一个很小的语料，只为测试。",
    "A small corpus in English, only for tests.\n",
    "def f(x):\n    return x + 1  # code\n",
)


def make_corpus(
    root: Path,
    sources: Mapping[str, Sequence[int]],
    *,
    heldout: Mapping[str, Sequence[int]] | None = None,
    types: Mapping[str, str] | None = None,
    mixture: Mixture | None = None,
    chunk_tokens: int = 32,
    vocab_size: int = 320,
    tokenizer: bool = False,
) -> Path:
    """Writes a corpus under `root`; returns the path of its manifest.

    `sources` and `heldout`: source -> chunks of each shard; its type is its name, or that in
    `types`. Without `mixture` each source is drawn by its size. The ids are documents that can be
    learned (`jaxlm.data.synthetic`), each shard ends in padding; no document tables lie beside
    them. With `tokenizer` a real SentencePiece model of `vocab_size` does, else none.
    """
    types = types or {}
    (root / "shards").mkdir(parents=True)
    shards = []
    splits: tuple[tuple[Split, Mapping[str, Sequence[int]]], ...] = (
        ("train", sources),
        ("heldout", heldout or {}),
    )
    for split, listed in splits:
        for source, chunks in listed.items():
            for i, n in enumerate(chunks):
                name = f"shards/{source}-{split}-{i:05d}.array_record"
                ids = _stream(len(shards), n * chunk_tokens, vocab_size)
                records = to_chunks(ids, chunk_tokens)
                shard = write_shard(root, name, source, split, records)
                shards.append(replace(shard, type=types.get(source, source)))
    manifest = Manifest(
        version=manifests.VERSION,
        tokenizer="tokenizer.model",
        tokenizer_hash=_train(root, vocab_size) if tokenizer else "none",
        vocab_size=vocab_size,
        bos_id=BOS_ID,
        pad_id=PAD_ID,
        dtype="uint16",
        chunk_tokens=chunk_tokens,
        packing="concat",
        mixture=mixture or Mixture((), 4.0, 0.01, dict.fromkeys(sources, 1.0)),
        shards=tuple(shards),
        recipe={},
        counts={},
    )
    manifests.save(manifest, root / "manifest.json")
    return root / "manifest.json"


def to_chunks(ids: np.ndarray, chunk_tokens: int) -> np.ndarray:
    """ids[chunks, chunk_tokens + 1] of a stream of whole chunks and one id more."""
    starts = np.arange(0, len(ids) - 1, chunk_tokens)
    return ids[starts[:, None] + np.arange(chunk_tokens + 1)]


def write_shard(root: Path, name: str, source: str, split: Split, records: np.ndarray) -> Shard:
    """Writes records (ids[chunks, chunk_tokens + 1]) as a shard, `root / name`."""
    writer = ArrayRecordWriter(str(root / name), "group_size:1,zstd:1")
    for record in records:
        writer.write(record.astype("<u2").tobytes())
    writer.close()
    return Shard(
        path=name,
        source=source,
        type=source,
        split=split,
        chunks=len(records),
        tokens=int((records[:, 1:] != PAD_ID).sum()),
        text_bytes=3 * records.size,
        file_bytes=(root / name).stat().st_size,
        sha256=manifests.sha256(root / name),
        documents=int((records[:, 1:] == BOS_ID).sum() + (records[:1, 0] == BOS_ID).sum()),
        table_bytes=0,
        table_sha256="",
    )


def read_shard(path: Path) -> np.ndarray:
    """uint16[chunks, chunk_tokens + 1]: all records of a shard, read in one go."""
    return np.stack([np.frombuffer(r, "<u2") for r in ArrayRecordReader(str(path)).read_all()])


def _stream(seed: int, length: int, vocab_size: int) -> np.ndarray:
    ids = SyntheticRows(seed, length, vocab_size).rows(np.array([0]))[0]
    ids[0] = BOS_ID
    ids[-5:] = PAD_ID
    return ids


def _train(root: Path, vocab_size: int) -> str:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 10),
        model_prefix=str(root / "tokenizer"),
        vocab_size=vocab_size,
        model_type="bpe",
        pad_id=PAD_ID,
        bos_id=BOS_ID,
        unk_id=2,
        eos_id=-1,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        allow_whitespace_only_pieces=True,
        byte_fallback=True,
        character_coverage=1.0,
        minloglevel=2,
    )
    tokenizer = open_tokenizer(root / "tokenizer.model")
    assert tokenizer.vocab_size == vocab_size
    return tokenizer.hash()
