"""Rows made up by a formula: the trainer without a corpus, with something to learn.

A row is a run of documents; in a document the ids count upwards, and now and then jump. So the next
id is known but for jumps, and a model's loss falls from log(V) to about log(V) / 8 + 0.4.
"""

import hashlib
import json
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from jaxlm.data.manifest import Split

VERSION = 1
"""Part of the fingerprint: raise it when the same seed comes to give other rows."""

PAD_ID, BOS_ID, FIRST_ID = 0, 1, 2
"""Padding, the start of a document, and the first id of its content."""

JUMP, DOCUMENT = 1 / 8, 1 / 128
"""Chances that an id is drawn afresh, and that a document starts."""


class SyntheticRows:
    """Endless rows, the same for the same (seed, split, position) on every machine."""

    def __init__(self, seed: int, seq_len: int, vocab_size: int, split: Split = "train"):
        if vocab_size <= FIRST_ID:
            raise ValueError(f"vocab_size={vocab_size}: must be above {FIRST_ID}")
        self.seq_len, self.vocab_size = seq_len, vocab_size
        self.bos_id, self.pad_id = BOS_ID, PAD_ID
        self.dtype = np.dtype("<u2" if vocab_size <= 2**16 else "<u4")
        self._seed = seed
        name = json.dumps([seed, split]).encode()
        self._key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def fingerprint(self) -> dict[str, Any]:
        """What decides which ids lie at which position, as plain data for JSON."""
        return {
            "synthetic_version": VERSION,
            "seed": self._seed,
            "seq_len": self.seq_len,
            "vocab_size": self.vocab_size,
        }

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """ids[N, T + 1] at these positions (int64[N]); a pure function."""
        ids = np.empty((len(positions), self.seq_len + 1), self.dtype)
        for i, position in enumerate(positions.tolist()):
            ids[i] = self._row(position)
        return ids

    def stream(self, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
        """`rows` of each of these batches of positions, in turn."""
        return (self.rows(batch) for batch in batches)

    def _row(self, position: int) -> np.ndarray:
        # Philox is a function of key and counter; each row has 2**64 counters to itself.
        noise = np.random.Philox(key=self._key, counter=position << 64)
        drawn, chance = noise.random_raw(2 * (self.seq_len + 1)).reshape(2, -1)
        starts = (chance >> 32) < DOCUMENT * 2**32
        fresh = (chance & 0xFFFFFFFF) < JUMP * 2**32
        fresh[1:] |= starts[:-1]
        t = np.arange(self.seq_len + 1)
        since = np.maximum.accumulate(np.where(fresh, t, 0))
        content = self.vocab_size - FIRST_ID
        ids = FIRST_ID + ((drawn % content).astype(np.int64)[since] + t - since) % content
        return np.where(starts, BOS_ID, ids)


class SyntheticHeldOut(SyntheticRows):
    """`len` rows which training never sees; behind the last one come rows of padding."""

    def __init__(self, seed: int, seq_len: int, vocab_size: int, count: int):
        super().__init__(seed, seq_len, vocab_size, "heldout")
        self._count = count

    def __len__(self) -> int:
        return self._count

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """ids[N, T + 1] at these positions (int64[N]); padding, which weighs nothing, from len."""
        ids = super().rows(positions)
        ids[positions >= self._count] = PAD_ID
        return ids
