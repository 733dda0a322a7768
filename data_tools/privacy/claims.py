"""The span engine: who may have which characters."""

from bisect import bisect_left
from collections.abc import Iterator

from data_tools.privacy.detectors import ADDRESSES, DETECTORS, NUMBERS
from data_tools.privacy.placeholder import HASHED
from data_tools.privacy.shadow import shadow
from data_tools.privacy.span import Recogniser, Span


class Claims:
    """Spans of one text that do not overlap: the first to claim a character keeps it."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def add(self, span: Span) -> None:
        """Claims the span unless a part of it is taken."""
        at = bisect_left(self._spans, span)
        before = at == 0 or self._spans[at - 1].end <= span.start
        after = at == len(self._spans) or span.end <= self._spans[at].start
        if before and after:
            self._spans.insert(at, span)

    def __iter__(self) -> Iterator[Span]:
        """In the order of the text."""
        return iter(self._spans)


def claim(text: str, recognise: Recogniser | None = None) -> list[Span]:
    """All private data in a text, in its order; `recognise` has what the detectors leave."""
    form = shadow(text)
    claims = Claims()
    for match in HASHED.finditer(text):
        claims.add(Span(*match.span(), ""))
    whole = [(0, len(form.text))]
    windows = {where: list(where.windows(form.text)) for where in (NUMBERS, ADDRESSES)}
    for detector in DETECTORS:
        for start, end in windows[detector.where] if detector.where else whole:
            for hit in detector.find(form.text, start, end):
                claims.add(Span(*form.original(*hit), detector.entity))
    for span in recognise(text) if recognise else ():
        claims.add(span)
    return [span for span in claims if span.entity]
