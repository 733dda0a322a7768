"""`python -m bench.privacy`: how well private data is found, and how fast.

Precision and recall by type on synthetic records, hits on the standard library's code and on a
Chinese novel, where there should be none of the structured types, and MB/s on one core.
"""

import argparse
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.records import Label, records
from data_tools.privacy import placeholder
from data_tools.privacy.claims import claim
from data_tools.privacy.span import Span
from data_tools.sample import book

ROUNDS = 3
TESTS = {"test", "tests", "idle_test", "site-packages", "__pycache__"}


class Score(NamedTuple):
    """Spans of one entity. A hit counts when start, end and entity are all right."""

    right: int
    wrong: int
    missed: int

    @property
    def recall(self) -> float:
        """Share of what is there that was found."""
        return self.right / max(1, self.right + self.missed)

    @property
    def precision(self) -> float:
        """Share of what was found that is there."""
        return self.right / max(1, self.right + self.wrong)


def scores(seed: int, each: int) -> dict[str, Score]:
    """Entity -> score over `bench.records`."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for record in records(seed, each):
        found: set[Label] = {(s.start, s.end, s.entity) for s in claim(record.text)}
        wanted = set(record.labels)
        right.update(entity for _, _, entity in found & wanted)
        wrong.update(entity for _, _, entity in found - wanted)
        missed.update(entity for _, _, entity in wanted - found)
    entities = sorted(right | wrong | missed)
    return {entity: Score(right[entity], wrong[entity], missed[entity]) for entity in entities}


def library(tests: bool) -> Iterator[tuple[str, str]]:
    """(path, text) of the standard library's files; `tests`: those of its tests instead."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if "site-packages" not in parts and bool(TESTS.intersection(parts)) == tests:
            yield "/".join(parts), path.read_text(encoding="utf-8", errors="replace")


class Hit(NamedTuple):
    """A span in a file, as it may be shown."""

    path: str
    line: int
    entity: str
    masked: str
    context: str


def hits(files: Iterable[tuple[str, str]]) -> Iterator[Hit]:
    """Every hit in the files, masked."""
    for path, text in files:
        spans = claim(text)
        for span in spans:
            masked = placeholder.mask(span.entity, text[span.start : span.end])
            begin = text.rfind("\n", 0, span.start) + 1
            line = text.count("\n", 0, span.start) + 1
            yield Hit(path, line, span.entity, masked, _masked(text, begin, span, masked))


def _masked(text: str, begin: int, span: Span, masked: str) -> str:
    """What stands before the span on its line, and the span."""
    return text[max(begin, span.start - 40) : span.start].lstrip() + masked


def speed(texts: list[str]) -> float:
    """MB of UTF-8 a second of processor time, the best of some rounds."""
    size = sum(len(text.encode()) for text in texts)
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for text in texts:
            claim(text)
        best = min(best, time.process_time() - started)
    return size / best / 1e6


def main() -> int:
    """Prints what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.privacy", description=__doc__)
    parser.add_argument("--each", type=int, default=500, help="records of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--code", action="store_true", help="list every hit on the code")
    parser.add_argument("--tests", action="store_true", help="take the code's tests instead")
    args = parser.parse_args()
    code = list(library(args.tests))
    if args.code or args.tests:
        for hit in hits(code):
            print(f"{hit.path}:{hit.line}\t{hit.entity}\t{hit.context}")
        return 0
    print(f"{'entity':<14}{'spans':>8}{'recall':>10}{'precision':>12}")
    for entity, score in scores(args.seed, args.each).items():
        spans = score.right + score.missed
        print(f"{entity:<14}{spans:>8}{score.recall:>10.4f}{score.precision:>12.4f}")
    with tempfile.TemporaryDirectory() as directory:
        chapters = [text["text"] for text in book(Path(directory))]
    for name, texts in (("code", [text for _, text in code]), ("novel", chapters)):
        counts = Counter(span.entity for text in texts for span in claim(text))
        size = sum(len(text.encode()) for text in texts) / 1e6
        print(f"{name}: {size:.1f} MB, {speed(texts):.0f} MB/s, hits {dict(counts) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
