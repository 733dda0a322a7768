"""Held-out text of a corpus, by type and language, decoded from its shards: they lose nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from data_tools.clean.language import detect
from data_tools.clean.measure import measure
from jaxlm.data.documents import read_table
from jaxlm.data.manifest import Manifest, ManifestError, Shard, check_files
from jaxlm.data.tokenizer import Tokenizer

SOURCE_BYTES = 8 << 20
"""UTF-8 of a source, about: more makes the figures no better. Documents lie in the order of a hash,
so that the first of them are a fair sample."""

CHINESE, ENGLISH, OTHER = "zh", "en", "other"


@dataclass
class Row:
    """Held-out text of one type and language: a row of the evaluation."""

    name: str
    """web zh, or code, which has no language."""
    type: str
    language: str
    """Empty for code."""
    texts: list[str] = field(default_factory=list)
    characters: int = 0
    bytes: int = 0

    def add(self, text: str) -> int:
        """One more document; returns its bytes."""
        size = len(text.encode())
        self.texts.append(text)
        self.characters += len(text)
        self.bytes += size
        return size


def heldout_rows(manifest: Manifest, root: Path, tokenizer: Tokenizer) -> dict[str, Row]:
    """The held-out text of a corpus by row, in the order of the names; of a source the first
    `SOURCE_BYTES`. `ManifestError` for shards that are damaged."""
    check_files(manifest, root)
    code_types = manifest.setting("near.shingles.code_types", tuple[str, ...])
    rows: dict[str, Row] = {}
    for shards in manifest.sources("heldout").values():
        left = SOURCE_BYTES
        for text in (t for s in shards for t in documents(manifest, root, s, tokenizer)):
            kind = shards[0].type
            language = "" if kind in code_types else language_of(text)
            name = f"{kind} {language}".strip()
            left -= rows.setdefault(name, Row(name, kind, language)).add(text)
            if left <= 0:
                break
    return dict(sorted(rows.items()))


def language_of(text: str) -> str:
    """Chinese by the share of Han characters, as the rules see it; English or another by model."""
    if measure(text).is_chinese:
        return CHINESE
    return ENGLISH if detect(text)[0] == "en" else OTHER


def documents(manifest: Manifest, root: Path, shard: Shard, tokenizer: Tokenizer) -> Iterator[str]:
    """The documents of a shard as text; one in several pieces is put together."""
    path = root / shard.path
    table = read_table(root, shard, ["id", "start", "tokens", "skip"])
    pieces: dict[bytes, list[tuple[int, int, int]]] = {}
    for id, start, tokens, skip in zip(*table.to_pydict().values(), strict=True):
        pieces.setdefault(id, []).append((skip, start, tokens))
    reader = array_record_module.ArrayRecordReader(str(path), options="readahead_buffer_size:0")
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    for found in pieces.values():
        ids: list[int] = []
        try:
            for _, start, tokens in sorted(found):
                ids += _read(reader, dtype, manifest.chunk_tokens, start + 1, tokens)
            text = tokenizer.decode(ids)
        except (RuntimeError, ValueError, IndexError) as e:
            raise ManifestError(
                f"{path}: is damaged: {e}; restore it, or remove {path.parent} and build the "
                "corpus again"
            ) from e
        yield text


def _read(
    reader: array_record_module.ArrayRecordReader,
    dtype: np.dtype,
    chunk_tokens: int,
    start: int,
    tokens: int,
) -> list[int]:
    """`tokens` tokens of the shard's stream from `start` on.

    Record i has those from i * chunk_tokens on, and the first of the next.
    """
    if not tokens:
        return []
    first, last = start // chunk_tokens, (start + tokens - 1) // chunk_tokens
    last = min(last, reader.num_records() - 1)  # the last token of all has no record of its own
    records = reader.read(list(range(first, last + 1)))
    chunks = np.frombuffer(b"".join(records), dtype).reshape(len(records), chunk_tokens + 1)
    stream = np.append(chunks[:, :-1], chunks[-1, -1])
    at = start - first * chunk_tokens
    return stream[at : at + tokens].tolist()
