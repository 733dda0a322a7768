"""Where a tokenized document goes: to a pile, or to none.

A pile is the documents of one split that become one source of the corpus: the held-out ones of a
recipe's source, its training text, or one bucket of that by quality. Held-out text is not put into
buckets, so that other buckets do not change what is evaluated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from data_tools.document import Drop
from data_tools.heldout import HeldoutConfig
from data_tools.pack.config import ExcludeConfig, PackConfig
from jaxlm.data.manifest import Split

DECIDES = ("read_hash", "type", "quality", "faults")
"""Columns of a table of tokens that `placed` reads."""


class Pile(NamedTuple):
    """Documents that are packed together."""

    source: str
    """In the corpus."""
    split: Split


@dataclass(frozen=True)
class PileConfig:
    """What decides about the documents of one source."""

    source: str
    """In the recipe."""
    heldout: HeldoutConfig
    exclude: tuple[ExcludeConfig, ...]
    """Those that apply to its type."""
    edges: tuple[float, ...]
    """Of its buckets; empty: it has none."""

    @property
    def piles(self) -> tuple[Pile, ...]:
        """Training text from the lowest quality up, then what is held out."""
        names = [self.source]
        if self.edges:
            names = [bucket_source(self.source, i) for i in range(len(self.edges) + 1)]
        return (*(Pile(name, "train") for name in names), Pile(self.source, "heldout"))


def bucket_source(source: str, bucket: int) -> str:
    """Name that a bucket of a recipe's source has as a source of the corpus."""
    return f"{source}.q{bucket}"


def recipe_source(source: str) -> str:
    """The recipe's source of a source of the corpus, which may be a bucket of it."""
    return source.partition(".")[0]


def pile_config(source: str, type: str, pack: PackConfig, heldout: HeldoutConfig) -> PileConfig:
    """The slice of a recipe that concerns a source of this type."""
    exclude = tuple(e for e in pack.exclude if not e.types or type in e.types)
    buckets = pack.buckets_of(type)
    return PileConfig(source, heldout, exclude, buckets.edges if buckets else ())


def placed(rows: pa.Table, config: PileConfig) -> Iterator[int | Drop]:
    """For each of these documents (with the columns `DECIDES`) the index of its pile, or why it
    has none."""
    columns = rows.select(DECIDES).to_pydict()
    buckets = np.digitize(columns["quality"], config.edges).tolist()
    heldout = len(config.piles) - 1
    documents = zip(buckets, *columns.values(), strict=True)
    for bucket, read_hash, type, quality, faults in documents:
        why = _excluded(quality, faults, config.exclude)
        if why is not None:
            yield why
        elif config.heldout.holds(read_hash, type):
            yield heldout
        else:
            yield bucket


def _excluded(
    quality: float, faults: Sequence[str], exclude: Sequence[ExcludeConfig]
) -> Drop | None:
    for config in exclude:
        for rule in config.rules:
            if rule in faults:
                return Drop(f"exclude: {rule}", f"it broke the scored rule {rule}")
        if quality < config.below:
            return Drop("exclude: quality", f"quality {quality:.3f}, below {config.below}")
    return None
