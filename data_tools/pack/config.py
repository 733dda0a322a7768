"""How tokenized documents become shards: what is left out, quality buckets, packing, sizes."""

from dataclasses import dataclass

from data_tools import thresholds
from jaxlm.data.manifest import Packing


@dataclass(frozen=True)
class ExcludeConfig:
    """Documents left out of the shards, held-out ones too. They stay tokenized: a change packs anew
    and does no more."""

    types: tuple[str, ...] = ()
    """Source types that it applies to; empty: all."""
    rules: tuple[str, ...] = ()
    """Scored rules (those with a weight): documents that broke one of them go."""
    below: float = 0.0
    """Documents of a quality below this go."""

    def __post_init__(self) -> None:
        if not 0 <= self.below <= 1:
            raise ValueError(f"below={self.below} must be from 0 to 1: qualities are")
        if not self.rules and not self.below:
            raise ValueError("rules=(), below=0: excludes nothing; name rules, or a quality")


@dataclass(frozen=True)
class BucketConfig:
    """Sources of some types packed by quality: each bucket a source of its own in the corpus,
    `<source>.q0` (the lowest), `<source>.q1`, ..., drawn by its weight."""

    types: tuple[str, ...] = ()
    """Source types that it applies to; empty: all."""
    edges: tuple[float, ...] = (0.5,)
    """Qualities where one bucket ends and the next begins; they increase."""
    weights: tuple[float, ...] = (1.0, 1.0)
    """How often a token of each bucket is drawn, relative to the others of its type; 0: never."""

    def __post_init__(self) -> None:
        if list(self.edges) != sorted({e for e in self.edges if 0 < e <= 1}) or not self.edges:
            raise ValueError(f"edges={self.edges} must increase, each above 0 and at most 1")
        if len(self.weights) != len(self.edges) + 1:
            raise ValueError(
                f"weights={self.weights}: {len(self.edges)} edges make {len(self.edges) + 1} "
                "buckets; give each a weight, the lowest bucket first"
            )
        for i, weight in enumerate(self.weights):
            thresholds.weight(f"weights[{i}]", weight)


@dataclass(frozen=True)
class PackConfig:
    """How token streams become shards."""

    method: Packing = "concat"
    """concat: documents end to end, cut every `chunk_tokens`. best_fit: a chunk holds whole
    documents, as many as fit, and padding; only longer ones are cut (Ding et al. 2024)."""
    chunk_tokens: int = 2048
    """New tokens a record: the smallest sequence length that will be trained with."""
    shard_bytes: int = 512 << 20
    """Size of a shard before compression, about; one shard is packed in memory."""
    salt: str = "order"
    """Documents enter the shards in the order of hash(id, salt)."""
    buckets: tuple[BucketConfig, ...] = ()
    """Types packed by quality; the first that applies to a type counts."""
    exclude: tuple[ExcludeConfig, ...] = ()
    """Documents left out; one of these is enough."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 2, "chunk_tokens")
        thresholds.at_least(self, 1, "shard_bytes")

    def buckets_of(self, type: str) -> BucketConfig | None:
        """How sources of this type are packed by quality; None: they are not."""
        return next((b for b in self.buckets if not b.types or type in b.types), None)
