"""The text that the tokenizer of a finished build was trained on, as its stages left it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from data_tools.document import DataError, digest
from data_tools.source import source_of
from data_tools.stage import COMMIT
from jaxlm.data.manifest import Manifest


def trained_on(workdir: Path, corpus: Manifest, most_bytes: int) -> Iterator[tuple[str, str]]:
    """(Type, text) of each piece that the trainer got; of more than `most_bytes` about so many,
    chosen by hash. `DataError` if the stages are not there, or of a build that took an existing
    tokenizer, or another one than the corpus has."""
    commit = workdir / "stages/tokenizer/model" / COMMIT
    files = list((workdir / "stages/tokenizer_sample").glob("*/sample.parquet"))
    report = json.loads(commit.read_text(encoding="utf-8"))["report"] if commit.is_file() else {}
    of_corpus = report.get("hash") == corpus.tokenizer_hash
    if not files or "sample_bytes" not in report or not of_corpus:
        raise DataError(
            f"{workdir}/stages: has no text that the corpus's tokenizer was trained on; take the "
            "work directory of a build that trained its tokenizer, with its stages"
        )
    quotas = report["sample_bytes"]
    order = [source["name"] for source in corpus.recipe["sources"]]
    files.sort(key=lambda file: (order.index(source_of(file.parent.name)), file.parent.name))
    all_bytes = sum(quotas.values())
    taken: Counter[str] = Counter()
    for file in files:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(columns=["type", "text"]):
                columns = batch.to_pydict()
                for kind, text in zip(columns["type"], columns["text"], strict=True):
                    size = len(text.encode())
                    if taken[kind] + size <= quotas[kind]:  # as the trainer counts
                        taken[kind] += size
                        if _hash(text) * all_bytes < most_bytes << 64:
                            yield kind, text


def _hash(text: str) -> int:
    return int.from_bytes(digest(text)[:8], "big")
