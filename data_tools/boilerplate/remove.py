"""Removal of boilerplate lines from a document; the text around them stays as it is."""

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow.parquet as pq

from data_tools.boilerplate.config import Removal
from data_tools.boilerplate.line import hash64, lines_of, normal_form
from data_tools.boilerplate.site import EVERYWHERE, site_of
from data_tools.document import Document, Drop
from data_tools.stage import Input


class Boilerplate:
    """The boilerplate of one partition: what was found there, and the seeds."""

    def __init__(self, config: Removal, tables: Iterable[Input]):
        """`tables`: `find(...).about(partition)`."""
        self._longest = config.longest
        self._seed = re.compile("|".join(f"(?:{s})" for s in config.seeds) or r"(?!)")
        self._lines: dict[int, set[int]] = {EVERYWHERE: set()}
        for table in tables:
            columns = pq.read_table(table.path)
            for site, line in zip(*(columns[n].to_pylist() for n in ("site", "line")), strict=True):
                self._lines.setdefault(site, set()).add(line)

    def __call__(self, document: Document) -> tuple[Document | Drop, int]:
        """The document without its boilerplate, and the number of lines removed.

        A document with nothing else is dropped.
        """
        everywhere = self._lines[EVERYWHERE]
        here = self._lines.get(hash64(site_of(document)), everywhere)

        def is_boilerplate(line: str) -> bool:
            hash = hash64(line)
            return hash in everywhere or hash in here or bool(self._seed.fullmatch(line))

        text, removed = remove(document.text, is_boilerplate, self._longest)
        if removed and not text:
            detail = f"{removed} lines of boilerplate and no others"
            return Drop("boilerplate", detail), removed
        return document.with_text(text), removed


def remove(text: str, is_boilerplate: Callable[[str], bool], longest: int) -> tuple[str, int]:
    """The text without its boilerplate lines, and their number.

    `is_boilerplate` judges normal forms; a line of more than `longest` characters is none.

    A removed line takes its newline along. Of the blank lines before and after removed ones the
    longer run stays, so that paragraphs stay as far apart as they were; between removed lines, and
    where the text then starts or ends, none stays. All else is as before; a text that did not end
    with a newline does not now.
    """
    kept: list[str] = []
    gap: list[str | None] = []  # blank lines, and None for a removed one
    removed = 0
    for line in lines_of(text):
        normal = normal_form(line) if len(line) <= longest else line.strip()
        if not normal:
            gap.append(line)
        elif len(line) <= longest and is_boilerplate(normal):
            gap.append(None)
            removed += 1
        else:
            kept += _blank_lines(gap, edge=not kept)
            kept.append(line)
            gap.clear()
    kept += _blank_lines(gap, edge=True)
    if not removed:
        return text, 0
    left = "".join(kept)
    return left if text.endswith("\n") else left.removesuffix("\n"), removed


def _blank_lines(gap: Sequence[str | None], edge: bool) -> list[str]:
    """Those that stay between two lines of text; `edge`: there is none on one side."""
    runs: list[list[str]] = [[]]
    for line in gap:
        if line is None:
            runs.append([])
        else:
            runs[-1].append(line)
    if len(runs) == 1:
        return runs[0]
    return [] if edge else max(runs[0], runs[-1], key=len)
