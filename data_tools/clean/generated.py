"""Drops files that a program wrote."""

from dataclasses import dataclass

from data_tools.document import Document, Drop


@dataclass(frozen=True)
class Generated:
    """Goes by `meta["generated"]`, which the reader of source trees sets to yes or no."""

    def __call__(self, document: Document) -> Document | Drop:
        if document.meta.get("generated") == "yes":
            return Drop("generated", "marked as written by a program")
        return document
