"""Which documents are kept for evaluation: a function of their text as it was read."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxlm.schema import ConfigError

HELDOUT_DUPLICATE = "heldout_duplicate"
"""Rule of the verdict about what says the same as a held-out text. Such a document is in no split,
and is not restored by its id: training would see what evaluation asks for."""


@dataclass(frozen=True)
class HeldoutConfig:
    """Documents whose salted hash falls under a threshold.

    The hash is that of the text as it was read, and nothing else decides: no rule, no setting and
    no document that is added later takes an evaluation document into training. Of documents that
    say nearly the same, a held-out one stays; those that are not held out themselves are dropped.
    """

    fraction: float = 0.001
    """Share of the documents; 0 holds out none."""
    types: tuple[tuple[str, float], ...] = ()
    """(type, share) pairs: types of source with a share of their own; small ones need more."""
    salt: str = "heldout"
    """Another salt makes another choice: training text of an earlier build may be in it."""

    def __post_init__(self) -> None:
        _check_fraction("fraction", self.fraction)
        names = [name for name, _ in self.types]
        for name, fraction in self.types:
            _check_fraction(f"types: {name!r}, fraction", fraction)
            if names.count(name) > 1:
                raise ValueError(f"types: {name!r} is named twice; name it once")

    def fraction_of(self, type: str) -> float:
        """Share of the documents of this type."""
        return dict(self.types).get(type, self.fraction)

    def place(self, read_hash: bytes) -> int:
        """Where a text stands among all, from 0 to 2^64: the first are held out."""
        digest = hashlib.blake2b(self.salt.encode() + read_hash, digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def limit_of(self, type: str) -> int:
        """The places below it are those of held-out texts."""
        return math.ceil(self.fraction_of(type) * 2**64)

    @property
    def empty(self) -> bool:
        """Whether nothing is held out."""
        return not any((self.fraction, *(fraction for _, fraction in self.types)))

    def holds(self, read_hash: bytes, type: str) -> bool:
        """Whether a text is held out; `read_hash` is that of the text as it was read."""
        return self.place(read_hash) < self.limit_of(type)


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name}={value} must be at least 0 and below 1")


def check(config: HeldoutConfig, types: Sequence[str]) -> None:
    """`ConfigError` when the config names a type that is not among those of the sources."""
    for name, _ in config.types:
        if name not in types:
            raise ConfigError(
                f"config.heldout.types: no source has the type {name!r}; types here: "
                f"{', '.join(types)}"
            )
