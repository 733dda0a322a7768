"""Takes lines out of a text and leaves the rest as it was."""

from collections.abc import Callable

from data_tools.document import Document, Drop


def keep_lines(document: Document, rule: str, keep: Callable[[str], bool]) -> Document | Drop:
    """The document without the lines that `keep`, shown them stripped, is against.

    Empty lines stay; a drop by `rule` when only they are left.
    """
    lines = document.text.split("\n")
    kept = [line for line in lines if not (stripped := line.strip()) or keep(stripped)]
    if len(kept) == len(lines):
        return document
    text = "\n".join(kept)
    if not text.strip():
        return Drop(rule, f"nothing is left after {len(lines) - len(kept)} lines went")
    return document.with_text(text)
