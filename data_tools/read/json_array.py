"""The elements of a JSON array, one in memory at a time; a broken one does not hide the others."""

import re
from collections.abc import Iterator

from data_tools.read.record import Bad, too_long

TOKEN = re.compile(r"\\.|[\"\[\]{},]", re.DOTALL)


def split_array(text: Iterator[str], limit: int) -> Iterator[str | Bad]:
    """The text of each element of an array that comes in pieces, in the place "element N" from 1.

    Of an element of more than `limit` characters, and of what is no element, a `Bad`.
    """
    depth, quoted, number, length = 0, False, 1, 0
    held: list[str] = []

    def element() -> str | Bad:
        place = f"element {number}"
        if length > limit:
            return too_long(place, length, limit)
        return "".join(held)

    for piece in _whole_escapes(text):
        start = 0
        for token in TOKEN.finditer(piece):
            mark = token[0]
            if mark == '"':
                quoted = not quoted
            if quoted or mark in '"\\' or len(mark) > 1:
                continue
            ends = depth == 1 and mark in ",]"
            if ends:
                held.append(piece[start : token.start()])
                length += token.start() - start
                if mark == "," or number > 1 or length > limit or "".join(held).strip():
                    yield element()
                held.clear()
                number, length, start = number + 1, 0, token.end()
            elif depth == 0:
                start = token.end()
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
            if depth <= 0:
                return
        length += len(piece) - start
        held.append(piece[start:])
        if length > limit:
            held.clear()
    yield Bad(f"element {number}", "JSON array without an end")


def _whole_escapes(text: Iterator[str]) -> Iterator[str]:
    r"""The same text, no piece of which ends between a \ and what it escapes."""
    held = ""
    for piece in text:
        piece = held + piece
        odd = (len(piece) - len(piece.rstrip("\\"))) % 2
        held = piece[len(piece) - odd :]
        yield piece[: len(piece) - odd]
    yield held
