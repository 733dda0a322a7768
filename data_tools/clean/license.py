"""Drops files by their licence."""

from dataclasses import dataclass

from data_tools.document import Document, Drop

UNKNOWN = "unknown"
"""What a file without `meta["license"]` has; the reader of source trees writes it too."""


@dataclass(frozen=True)
class License:
    """Goes by `meta["license"]`, an SPDX name as the reader of source trees finds it."""

    allow: tuple[str, ...] = ()
    """Only these stay; empty: all but those in `deny`."""
    deny: tuple[str, ...] = ()
    """None of these stays."""

    def __post_init__(self) -> None:
        if not self.allow and not self.deny:
            raise ValueError("allow=() and deny=() would keep all; name licences in one of them")
        for name in self.allow:
            if name in self.deny:
                raise ValueError(f"allow and deny both have {name!r}; take it out of one")

    def __call__(self, document: Document) -> Document | Drop:
        found = document.meta.get("license", UNKNOWN)
        if found in self.deny:
            return Drop("license", f"{found} is denied")
        if self.allow and found not in self.allow:
            return Drop("license", f"{found} is not among those allowed")
        return document
