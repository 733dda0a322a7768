"""What is boilerplate, and the slices of that which each of its stages depends on."""

import re
from dataclasses import dataclass

from data_tools.boilerplate.seeds import SEEDS


@dataclass(frozen=True)
class Counting:
    """Which lines are counted, and into how many buckets."""

    shortest: int
    longest: int
    buckets: int


@dataclass(frozen=True)
class Thresholds:
    """From which counts on a line is boilerplate."""

    documents: int
    sites: int
    site_documents: int
    site_share: float


@dataclass(frozen=True)
class Removal:
    """What removal needs beside the hashes that were found."""

    longest: int
    seeds: tuple[str, ...]


@dataclass(frozen=True)
class BoilerplateConfig:
    """Lines that recur over documents that are not copies of each other.

    A line is compared in its normal form (`line.normal_form`), counts once a document, and needs a
    letter: brackets, rules, numbers and fences of code never are boilerplate. Found in `documents`
    documents of `sites` sites it is removed everywhere; found in a share of one site, from there.
    """

    types: tuple[str, ...] = ("web",)
    """Source types that are looked at, all others are exempt; empty: none is."""
    documents: int = 20
    """Documents that a line must be in to be removed everywhere."""
    sites: int = 5
    """Sites that these documents must come from, at least."""
    site_documents: int = 10
    """Documents of one site that a line must be in to be removed from this site."""
    site_share: float = 0.2
    """Share of the site's documents that these must be, at least."""
    shortest: int = 2
    """Characters of a line that is counted, at least."""
    longest: int = 200
    """Characters of a line that is looked at, at most: what is longer is a paragraph."""
    seeds: tuple[str, ...] = SEEDS
    """Patterns of lines that are removed even when rare: each must match a whole normal form."""
    buckets: int = 16
    """Hash ranges that are counted apart: more work side by side."""

    def __post_init__(self) -> None:
        for name in ("documents", "site_documents"):
            if getattr(self, name) < 2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at least 2; in one document alone no "
                    "line is boilerplate"
                )
        for name in ("sites", "shortest", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.longest < self.shortest:
            raise ValueError(f"longest={self.longest} must be at least shortest={self.shortest}")
        if not 0 < self.site_share <= 1:
            raise ValueError(f"site_share={self.site_share} must be above 0 and at most 1")
        for seed in self.seeds:
            try:
                re.compile(seed)
            except re.error as e:
                raise ValueError(
                    f"seeds: {seed!r} is no regular expression ({e}); re.escape() a plain line"
                ) from None

    @property
    def counting(self) -> Counting:
        """What the counts depend on."""
        return Counting(self.shortest, self.longest, self.buckets)

    @property
    def thresholds(self) -> Thresholds:
        """What the verdicts depend on, beside the counts."""
        return Thresholds(self.documents, self.sites, self.site_documents, self.site_share)

    @property
    def removal(self) -> Removal:
        """What the removal depends on, beside the verdicts."""
        return Removal(self.longest, self.seeds)
