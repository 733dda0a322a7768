"""What is measured of one tokenizer on text: size, coverage, what comes back, fertility, speed."""

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from data_tools.tokenizer import fertility
from data_tools.tokenizer.coder import Coder
from data_tools.tokenizer.fertility import Fertility
from data_tools.tokenizer.spans import covered
from data_tools.tokenizer.texts import Row

ROUNDS = 5
"""Of timing, in which the tokenizers take turns; their median counts."""
SPEED_BYTES = 4_000_000
"""Text of a round, about: the rows give equal shares."""
AROUND = 12
"""Characters shown before and behind the place where a text does not come back."""


@dataclass
class Figures:
    """Sums over the documents of a row."""

    tokens: int = 0
    spanned: int = 0
    """Characters of the documents in which the place of each token can be told."""
    covered: int = 0
    """Of these, the characters that lie whole in one token, as a piece or in one."""
    failed: int = 0
    """Documents that do not come back exactly."""
    example: str = ""
    """Where the first of them changes."""
    fertility: dict[str, Fertility] = field(default_factory=dict)
    """By kind, of the documents of `spanned`."""


def measure(coder: Coder, row: Row) -> Figures:
    """Figures of a tokenizer on the documents of a row."""
    found = Figures()
    is_code = not row.language
    for text in row.texts:
        (ids,) = coder.encode_batch([text])
        found.tokens += len(ids)
        decoded = coder.decode(ids.tolist())
        if decoded != text:
            found.failed += 1
            found.example = found.example or difference(text, decoded)
        spans = coder.spans(text)
        if spans is not None:
            found.spanned += len(text)
            found.covered += covered(text, spans)
            fertility.measure(text, spans, found.fertility, is_code)
    return found


def difference(text: str, decoded: str) -> str:
    """The first place where a text does not come back, as it was and as it is."""
    pairs = enumerate(zip(text, decoded, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(text), len(decoded)))
    around = slice(max(at - AROUND, 0), at + AROUND)
    return f"{text[around]!r} comes back as {decoded[around]!r}"


def speeds(coders: Mapping[str, Coder], texts: Sequence[str]) -> dict[str, float]:
    """MB of UTF-8 a second that each encodes on one thread."""
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    seconds: dict[str, list[float]] = {name: [] for name in coders}
    for _ in range(ROUNDS + 1):
        for name, coder in coders.items():
            start = time.perf_counter()
            coder.encode_batch(texts)
            seconds[name].append(time.perf_counter() - start)
    return {name: megabytes / statistics.median(s[1:]) for name, s in seconds.items()}  # 1st: warm


def speed_texts(rows: Iterable[Row]) -> list[str]:
    """Documents of all rows to measure speed on."""
    listed = list(rows)
    chosen: list[str] = []
    for row in listed:
        left = SPEED_BYTES / len(listed)
        for text in row.texts:
            if left <= 0:
                break
            chosen.append(text)
            left -= len(text.encode())
    return chosen
