"""The privacy stage: documents with their private data kept, tagged, masked, hashed, or dropped."""

import heapq
import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_tools.document import DataError, Document, Drop, read_tables, table_writer
from data_tools.drops import Drops
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.ner import NER
from data_tools.privacy.scrub import Scrubber
from data_tools.stage import Input, Partition, Report, Stage

KEY_BYTES = 16
"""A shorter key could be guessed, and with it every hashed number."""
SAMPLES = 5
"""Kept documents of a partition in the report: those with the smallest content hashes."""
SAMPLE_CHARACTERS = 400


def inputs(config: PrivacyConfig) -> dict[str, tuple[Input, ...]]:
    """What every partition reads besides its documents: the key and the model of names.

    Call it when a build starts: raises `DataError` for a key or a model that cannot be used.
    """
    model = NER[config.ner]
    return {
        "key": (_key_input(Path(config.key_file)),) if config.key_file else (),
        "ner": model.inputs(Path(config.ner_path)) if model else (),
    }


def _key_input(path: Path) -> Input:
    """Known by what it hashes to: the key itself is in no fingerprint."""
    try:
        key = path.read_bytes()
    except OSError as e:
        raise DataError(
            f"key_file={str(path)!r}: {e.strerror}; make one: head -c 32 /dev/urandom > {path}"
        ) from None
    if len(key) < KEY_BYTES:
        raise DataError(
            f"key_file={str(path)!r} has {len(key)} bytes, at least {KEY_BYTES} are needed; "
            f"make one: head -c 32 /dev/urandom > {path}"
        )
    return Input(path, "key", hmac.digest(key, b"identity", "sha256").hex())


@dataclass(frozen=True)
class ScrubConfig:
    """What the result for one partition depends on, besides its documents, key and model."""

    privacy: PrivacyConfig
    """`of` the source's type: another type's policies are no part of it."""
    type: str
    """The source's."""


def privacy_partition(partition: Partition[ScrubConfig], out: Path) -> Report:
    """Writes documents.parquet, and dropped.parquet when a document is dropped."""
    config = partition.config
    key = next((i.path.read_bytes() for i in partition.inputs["key"]), None)
    scrubber = Scrubber(config.privacy, config.type, key)
    drops, samples = Drops(), Samples()
    counts: Counter[str] = Counter()
    documents = text_bytes = 0
    with table_writer(out / "documents.parquet") as write:
        for document in read_tables(i.path for i in partition.inputs["documents"]):
            result = scrubber.scrub(document.text)
            if isinstance(result, Drop):
                drops.add(document, result)
                continue
            document = _tagged(document.with_text(result.text), result.counts, scrubber.policies)
            write(document)
            documents += 1
            text_bytes += len(document.text.encode())
            counts += result.counts
            samples.offer(document)
    drops.save(out)
    return {
        "documents": documents,
        "text_bytes": text_bytes,
        "ner": config.privacy.ner,
        "entities": {
            entity: {policy: counts[entity]}
            for entity, policy in scrubber.policies.items()
            if counts[entity]
        },
        "samples": samples.report(scrubber),
    } | drops.report()


def _tagged(document: Document, counts: Mapping[str, int], policies: Mapping[str, str]) -> Document:
    """The document with what its policy tags in `meta["private"]`, for example `uscc=2`."""
    found = [f"{e}={counts[e]}" for e, policy in policies.items() if policy == "tag" and counts[e]]
    if not found:
        return document
    return replace(document, meta={**document.meta, "private": " ".join(found)})


class Samples:
    """A few kept documents for the report: those with the smallest content hashes."""

    def __init__(self) -> None:
        self._chosen: list[tuple[bytes, bytes, Document]] = []

    def offer(self, document: Document) -> None:
        """Takes the document if it is among the first so far."""
        self._chosen.append((document.content_hash, document.id, document))
        self._chosen = heapq.nsmallest(SAMPLES, self._chosen, key=lambda entry: entry[:2])

    def report(self, scrubber: Scrubber) -> list[dict[str, Any]]:
        """Where they are from, and how they begin, as people may see it."""
        return [
            {
                "id": document.id.hex(),
                "source": document.source,
                "path": document.path,
                "offset": document.offset,
                # masked before it is cut, so that no half of a number shows
                "text": scrubber.mask(document.text)[:SAMPLE_CHARACTERS],
            }
            for _, _, document in self._chosen
        ]


PRIVACY = Stage("privacy", "1", privacy_partition)
