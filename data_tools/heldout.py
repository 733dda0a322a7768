"""Which documents are kept for evaluation: a function of their text as it was read."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.stage import Input

RELATIVES = pa.schema([("id", pa.binary(16)), ("read_hash", pa.binary(16))])
"""A row for each document and each of its near duplicates: its id, the hash of the other."""


@dataclass(frozen=True)
class HeldoutConfig:
    """Documents whose salted hash falls under a threshold.

    The hash is that of the text as it was read, and a document is held out with any of its near
    duplicates, dropped ones too: so neither cleaning nor a new and better copy takes an evaluation
    document into training.
    """

    fraction: float = 0.001
    """Share of the documents; 0 holds out none."""
    salt: str = "heldout"
    """Another salt makes another choice: training text of an earlier build may be in it."""

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise ValueError(f"fraction={self.fraction} must be at least 0 and below 1")

    def holds(self, read_hashes: Iterable[bytes]) -> bool:
        """True when a document belongs to the split `heldout`: its hash, and its relatives'."""
        return any(self._falls_below(h) for h in read_hashes)

    def _falls_below(self, read_hash: bytes) -> bool:
        digest = hashlib.blake2b(self.salt.encode() + read_hash, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.fraction * 2**64


def read_relatives(files: Iterable[Input]) -> Mapping[bytes, list[bytes]]:
    """Document id -> hashes of its near duplicates."""
    relatives: dict[bytes, list[bytes]] = {}
    for file in files:
        columns = pq.read_table(file.path, schema=RELATIVES).to_pydict()
        for id, read_hash in zip(columns["id"], columns["read_hash"], strict=True):
            relatives.setdefault(id, []).append(read_hash)
    return relatives
