"""Labels of tokens, BIO or BIOES, as spans of a text."""

from collections.abc import Iterator, Sequence

from data_tools.privacy.span import Span

_ENTITY = {
    **dict.fromkeys(("PER", "PERSON", "NAME", "NR"), "person"),
    **dict.fromkeys(("LOC", "LOCATION", "GPE", "ADDRESS", "NS"), "place"),
    **dict.fromkeys(("ORG", "ORGANIZATION", "COMPANY", "GOVERNMENT", "NT"), "organisation"),
}
"""What data sets call them, in upper case; other labels are no private data."""


def entity(label: str) -> str | None:
    """The type of private data of a label such as `B-PER`; `None` outside and for other types."""
    return _ENTITY.get(label.partition("-")[2].upper())


def spans(labels: Sequence[str], offsets: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """Runs of one type; B and S begin a new one, so does I or E after another type."""
    begin, running = 0, None
    for i, label in enumerate([*labels, "O"]):
        kind = entity(label)
        if kind == running and label[0] not in "BS":
            continue
        if running is not None:
            yield Span(offsets[begin][0], offsets[i - 1][1], running)
        begin, running = i, kind
