"""What near dedup compares, when two documents are the same, and which of them stays."""

from dataclasses import dataclass
from typing import Literal

from data_tools import thresholds
from jaxlm.schema import section

LEAST_MEMORY_BYTES = 1 << 20
"""Of a budget: work is cut into pieces of its size, and each piece is a task and files."""
MOST_PERMUTATIONS = 4096
"""Of a signature, which is held for many documents at a time."""

type Criterion = Literal["quality", "longest", "source"]


@dataclass(frozen=True)
class ShingleConfig:
    """How a text becomes a set: every run of a few units in it is one shingle."""

    characters: int = 5
    """Units a shingle that begins with a character of a script without spaces (Chinese)."""
    words: int = 5
    """Units a shingle that begins with a word; case, width and punctuation do not count."""
    tokens: int = 5
    """Units a shingle of code: words, numbers and single signs; case counts."""
    shortest: int = 20
    """Texts with fewer shingles are the same only when they are equal: on a handful of shingles
    similarity says nothing."""
    code_types: tuple[str, ...] = ("code",)
    """Types of documents that are read as code."""
    types: tuple[str, ...] = ()
    """Types of documents that are compared by similarity; empty: all. Others are still the same
    as documents, of any type, with an equal text."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "characters", "words", "tokens", "shortest")


@dataclass(frozen=True)
class BandConfig:
    """Which pairs are looked at: those whose signatures agree in all rows of one band.

    A pair of similarity s is one with probability 1 - (1 - s^rows)^bands: with 14 bands of 8 rows
    0.05 at s = 0.5, 0.57 at 0.7, 0.92 at 0.8 and 0.99 at 0.85.
    """

    bands: int = 14
    """More of them find more pairs."""
    rows: int = 8
    """More of them find fewer pairs that are not similar."""
    seed: int = 1
    """Of the permutations, as in `datasketch.MinHash(bands * rows, seed)`."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "bands", "rows")
        thresholds.at_least(self, 0, "seed")
        if self.seed >= 1 << 32:
            raise ValueError(f"seed={self.seed} must be below 2**32")
        if self.bands * self.rows > MOST_PERMUTATIONS:
            raise ValueError(
                f"bands={self.bands} of rows={self.rows} are {self.bands * self.rows} permutations "
                f"for each shingle, at most {MOST_PERMUTATIONS} are allowed; lower one of them"
            )


@dataclass(frozen=True)
class SameConfig:
    """When two documents are the same."""

    threshold: float = 0.8
    """Least Jaccard similarity of their sets of shingles, computed exactly."""
    containment: float = 0.0
    """Above 0: also a document of which at least this share of shingles is in the kept one.
    Bands look for similar documents, so a short part of a long one is rarely looked at."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold} must be above 0 and at most 1")
        if not 0 <= self.containment <= 1:
            raise ValueError(
                f"containment={self.containment} must be from 0 to 1; 0 looks at Jaccard alone"
            )


@dataclass(frozen=True)
class SurvivorConfig:
    """Which document of a cluster stays: a held-out one before all others, then by this."""

    order: tuple[Criterion, ...] = ("quality", "longest", "source")
    """Criteria, the first that differs decides: best quality, most characters, first in
    `sources`. Equal in all: the smallest id."""
    sources: tuple[str, ...] = ()
    """Names of sources, best first; the others come after them, all alike."""

    def __post_init__(self) -> None:
        for name in ("order", "sources"):
            values = getattr(self, name)
            twice = [v for v in values if values.count(v) > 1]
            if twice:
                raise ValueError(f"{name}: {twice[0]!r} is named twice; name it once")


@dataclass(frozen=True)
class NearConfig:
    """Near duplicates: of documents that say nearly the same, one stays."""

    shingles: ShingleConfig = section(ShingleConfig)
    """Texts as sets."""
    candidates: BandConfig = section(BandConfig)
    """Pairs to look at."""
    same: SameConfig = section(SameConfig)
    """Pairs that count."""
    survivor: SurvivorConfig = section(SurvivorConfig)
    """What stays."""
    bucket_limit: int = 1000
    """Documents with one band in common; more of them are split by their next band as well."""
    memory_bytes: int = 256 << 20
    """Of a worker, for what it sorts and compares at a time. Changes no verdict."""
    alarm_share: float = 0.5
    """A source that loses a larger share of its documents is pointed out in the report."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 2, "bucket_limit")
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise ValueError(
                f"memory_bytes={self.memory_bytes} must be at least {LEAST_MEMORY_BYTES}: less "
                "cuts the work into countless tasks; raise it"
            )
        if not 0 < self.alarm_share <= 1:
            raise ValueError(f"alarm_share={self.alarm_share} must be above 0 and at most 1")
