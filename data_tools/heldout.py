"""Which documents are kept for evaluation: a function of their content alone."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldoutConfig:
    """Documents whose salted content hash falls under a threshold; later files move none."""

    fraction: float = 0.001
    """Share of the documents; 0 holds out none."""
    salt: str = "heldout"
    """Another salt makes another choice: training text of an earlier build may be in it."""

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise ValueError(f"fraction={self.fraction} must be at least 0 and below 1")

    def holds(self, content_hash: bytes) -> bool:
        """True when the document belongs to the split `heldout`."""
        digest = hashlib.blake2b(self.salt.encode() + content_hash, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.fraction * 2**64
