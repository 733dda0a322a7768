"""Which documents are kept for evaluation: a function of their content alone."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.stage import Input

MEMBERS = pa.schema([("id", pa.binary(16)), ("content_hash", pa.binary(16))])
"""A row for each document that stays, and each of its near duplicates: its id, the content hash of
the other."""


@dataclass(frozen=True)
class HeldoutConfig:
    """Documents whose salted content hash falls under a threshold; later files move none.

    A cluster of near duplicates is held out when any of its members is, so that a new and better
    copy of an evaluation document does not take it into training.
    """

    fraction: float = 0.001
    """Share of the documents; 0 holds out none."""
    salt: str = "heldout"
    """Another salt makes another choice: training text of an earlier build may be in it."""

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise ValueError(f"fraction={self.fraction} must be at least 0 and below 1")

    def holds(self, content_hashes: Iterable[bytes]) -> bool:
        """True when a cluster with these members belongs to the split `heldout`."""
        return any(self._falls_below(h) for h in content_hashes)

    def _falls_below(self, content_hash: bytes) -> bool:
        digest = hashlib.blake2b(self.salt.encode() + content_hash, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.fraction * 2**64


def read_members(files: Iterable[Input]) -> Mapping[bytes, list[bytes]]:
    """Document id -> content hashes of the near duplicates that it stands for."""
    members: dict[bytes, list[bytes]] = {}
    for file in files:
        columns = pq.read_table(file.path, schema=MEMBERS).to_pydict()
        for id, content_hash in zip(columns["id"], columns["content_hash"], strict=True):
            members.setdefault(id, []).append(content_hash)
    return members
