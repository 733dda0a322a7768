"""What `jaxlm trace` prints."""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxlm.data.documents import Entry
from jaxlm.trace import Part, Sight, Trace, TracedRow

PREVIEW_TOKENS, PREVIEW_CHARACTERS = 48, 80
"""What is shown of a text that is not asked for."""

CONTROLS = {
    **{i: 0x2400 + i for i in range(32) if chr(i) not in "\t\n"},
    **dict.fromkeys(range(127, 160), 0xFFFD),
}
"""A terminal obeys control characters: they are shown as their pictures, or as unknown."""

CONTROLS_IN_LINE = CONTROLS | {ord("\n"): 0x240A}
"""Of what is one line: the name of a file may hold a newline."""


def of_step(trace: Trace, step: int, row: int | None, text: bool) -> Iterator[str]:
    """The documents in the batch of a step, or in one row of it; `text`: all of it."""
    rows = trace.step(step, row)
    first, last = rows[0].position, rows[-1].position
    skipped = last + 1 - first - len(rows)
    batch = f": {len(rows)} rows, positions {first} to {last}" if row is None else ""
    yield f"step {step} of {trace.last_step}, {_when(trace, last)}{batch}" + (
        f", {skipped} between them skipped" if skipped else ""
    )
    for traced in rows:
        yield from _row(trace, traced, text)


def of_position(trace: Trace, position: int, text: bool) -> Iterator[str]:
    """The documents in the row at a position."""
    (traced,) = trace.rows(np.array([position]))
    if traced.step:
        yield f"step {traced.step} of {trace.last_step}, {_when(trace, position)}"
    else:
        yield "in no step: skipped"
    yield from _row(trace, traced, text)


def of_document(trace: Trace, id: str, text: bool) -> Iterator[str]:
    """The steps that a document is in: past ones, those to come, and what is skipped."""
    pieces = trace.document(id)
    sights = trace.sights(pieces)
    yield f"document {_origin(pieces[0])}"
    for piece in pieces:
        yield (
            f"  tokens {piece.skip} to {piece.skip + piece.tokens - 1}: shard {piece.shard}, from "
            f"token {piece.start + 1} on"
        )
    if pieces[0].split != "train":
        yield "held out for evaluation: no step trains on it"
    elif not sights:
        yield (
            f"no step up to the end, position {trace.end}, has it: its source is drawn too little, "
            "or it lies behind the last whole row of its shard"
        )
    past = [s for s in sights if s.step and s.position < trace.done]
    yield from _sights(f"done, the run is at position {trace.done}", past)
    yield from _sights("to come", [s for s in sights if s.step and s.position >= trace.done])
    yield from _sights("skipped", [s for s in sights if not s.step])
    if text:
        yield from _indented(trace.text(pieces))


def _sights(what: str, sights: list[Sight]) -> Iterator[str]:
    if sights:
        yield f"{what}:"
    for s in sights:
        where = f"step {s.step}, row {s.row}: " if s.step else ""
        yield f"  {where}position {s.position}, epoch {s.epoch} of its source"


def _row(trace: Trace, traced: TracedRow, text: bool) -> Iterator[str]:
    shard = traced.shard
    number = f"row {traced.row}: " if traced.step else ""
    yield (
        f"{number}position {traced.position}, {shard.source} epoch {traced.epoch}, "
        f"{shard.path} row {traced.shard_row}"
    )
    for part in traced.parts:
        last = part.first + len(part.ids) - 1
        yield f"  {_origin(part.entry)}  tokens {part.first} to {last}"
        yield from _indented(trace.decode(part.ids)) if text else _preview(trace, part)


def _origin(entry: Entry) -> str:
    cluster = f"  cluster {entry.cluster}" if entry.cluster else ""
    words = (
        f"{entry.id}  {entry.type}  {entry.path} of {entry.source} at {entry.offset}  "
        f"quality {entry.quality:.2f}{cluster}"
    )
    return _shown(words, CONTROLS_IN_LINE)


def _preview(trace: Trace, part: Part) -> Iterator[str]:
    words = _shown(" ".join(trace.decode(part.ids[:PREVIEW_TOKENS]).split()), CONTROLS)
    more = "..." if len(part.ids) > PREVIEW_TOKENS or len(words) > PREVIEW_CHARACTERS else ""
    yield f"    {words[:PREVIEW_CHARACTERS]}{more}"


def _shown(text: str, controls: Mapping[int, int]) -> str:
    """Without control characters; a batch may have ten thousand texts, and few have any."""
    return text if text.isprintable() else text.translate(controls)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.translate(CONTROLS).split("\n"))


def _when(trace: Trace, position: int) -> str:
    return "done" if position < trace.done else "to come"
