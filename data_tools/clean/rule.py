"""What a cleaning rule is."""

from typing import Protocol

from data_tools.document import Document, Drop


class Rule(Protocol):
    """A frozen dataclass whose fields are its thresholds; a pure function of one document."""

    def __call__(self, document: Document, /) -> Document | Drop: ...
