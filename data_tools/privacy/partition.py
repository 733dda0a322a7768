"""The privacy stage: documents with their private data kept, tagged, masked, hashed, or dropped."""

import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_tools.document import DOCUMENTS, DataError, Document, Drop, read_tables, table_writer
from data_tools.drops import Drops
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.ner import NER
from data_tools.privacy.scrub import VERSION, Scrubber
from data_tools.samples import SAMPLE_CHARACTERS, first
from data_tools.stage import Input, Partition, Report, Stage

KEY_BYTES = 16
"""A shorter key could be guessed, and with it every hashed number."""


def inputs(config: PrivacyConfig) -> dict[str, tuple[Input, ...]]:
    """What a partition reads besides its documents: the key and the model of names, if a policy
    needs them. `config` is `of` the type.

    Call it when a build starts: raises `DataError` for a key or a model that cannot be used.
    """
    model = NER[config.ner]
    return {
        "key": (_key_input(Path(config.key_file)),) if config.hashes() else (),
        "ner": model.inputs(Path(config.ner_path)) if model and config.names() else (),
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


def privacy_partition(partition: Partition[PrivacyConfig], out: Path) -> Report:
    """Writes documents.parquet, and dropped.parquet when a document is dropped.

    The config is `of` the source's type: another type's policies are no part of it.
    """
    config = partition.config
    key = next((i.path.read_bytes() for i in partition.inputs["key"]), None)
    scrubber = Scrubber(config, key)
    samples: list[Document] = []
    counts: Counter[str] = Counter()
    documents = text_bytes = 0
    with table_writer(out / DOCUMENTS) as write, Drops(out) as drops:
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
            samples = first([*samples, document], lambda d: d.id)
    return {
        "documents": documents,
        "text_bytes": text_bytes,
        "ner": config.ner,
        "entities": {
            entity: {policy: counts[entity]}
            for entity, policy in scrubber.policies.items()
            if counts[entity]
        },
        "samples": [_sample(document, scrubber) for document in samples],
    } | drops.report()


def _tagged(document: Document, counts: Mapping[str, int], policies: Mapping[str, str]) -> Document:
    """The document with what its policy tags in `meta["private"]`, for example `uscc=2`."""
    found = [f"{e}={counts[e]}" for e, policy in policies.items() if policy == "tag" and counts[e]]
    if not found:
        return document
    return replace(document, meta={**document.meta, "private": " ".join(found)})


def _sample(document: Document, scrubber: Scrubber) -> dict[str, Any]:
    """Where a document is from, and how it begins, as people may see it."""
    return {
        "id": document.id.hex(),
        "source": document.source,
        "path": document.path,
        "offset": document.offset,
        "excerpt": scrubber.excerpt(document.text, SAMPLE_CHARACTERS),
    }


PRIVACY = Stage("privacy", f"2; {VERSION}", privacy_partition)
