"""How a tokenizer is to treat the identifiers of code: candidates, measured on held-out text.

python -m bench.identifiers --corpus=DIR

DIR is the work directory of a finished build that trained its tokenizer. Each candidate is trained
on the same sample, by SentencePiece, and lives wholly in its model file.
"""

import argparse
import io
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from data_tools.tokenizer.coder import Coder, Opened
from data_tools.tokenizer.fertility import IDENTIFIER, IDENTIFIERS, Fertility, kind_of
from data_tools.tokenizer.figures import Figures, measure, speed_texts, speeds
from data_tools.tokenizer.texts import CHINESE, ENGLISH, Row, heldout_rows
from data_tools.tokenizer.trained_on import trained_on
from data_tools.tokenizer.words import BREAK, cut
from jaxlm.data import manifest as manifests
from jaxlm.data.tokenizer import open_tokenizer

PRESET: Mapping[str, Any] = {
    "model_type": "bpe",
    "num_threads": 16,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "allow_whitespace_only_pieces": True,
    "byte_fallback": True,
    "split_digits": True,
    "required_chars": "\u2581\n\t",
    "unk_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "pad_id": 3,
    "max_sentence_length": 16_000,  # bytes; the marks between words are in it
    "minloglevel": 2,
}
"""What all candidates share: lossless, a piece for each digit."""

MIXED = {"split_by_unicode_script": False}
WORDS = MIXED | {"pretokenization_delimiter": BREAK}
HAN = "々〇㐀-䶿一-鿿豈-﫿\U00020000-\U0003fffd"
LETTER = rf"(?:(?![{HAN}])[^\W\d])"
MARKED = re.compile(
    rf" *(?:[{HAN}]+|[^\w\s]?{LETTER}+|\d+|(?:[^\w\s](?!{LETTER})|[^\S ])+|[^\w\s])| +"
)
"""Words as in GPT-4: letters may have one sign before them, `.append` and `(self`."""


class Text(NamedTuple):
    """What candidates are trained and measured on."""

    sample: Sequence[str]
    code: Sequence[str]
    """The part of the sample that is code."""
    rows: Mapping[str, Row]


class Candidate(NamedTuple):
    """A trained one."""

    model: bytes
    seconds: float


type Make = Callable[[Text], tuple[Mapping[str, Any], Sequence[str]]]

CANDIDATES: dict[str, Make] = {
    "SentencePiece's defaults": lambda t: ({}, t.sample),
    "scripts mix": lambda t: (MIXED, t.sample),
    "scripts and numbers mix": lambda t: (MIXED | {"split_by_number": False}, t.sample),
    "1,000 names are pieces": lambda t: (_names(t, 1000, IDENTIFIERS), t.sample),
    "4,000 names are pieces": lambda t: (_names(t, 4000, IDENTIFIERS), t.sample),
    "1,000 compound names are pieces": lambda t: (_names(t, 1000, IDENTIFIERS[:3]), t.sample),
    "4,000 compound names are pieces": lambda t: (_names(t, 4000, IDENTIFIERS[:3]), t.sample),
    "scripts mix, 1,000 names are pieces": lambda t: (
        MIXED | _names(t, 1000, IDENTIFIERS),
        t.sample,
    ),
    "words of one kind": lambda t: (WORDS, [cut(text) for text in t.sample]),
    "words of one kind, a sign before": lambda t: (
        WORDS,
        [BREAK.join(MARKED.findall(text)) for text in t.sample],
    ),
}
"""Name -> options of SentencePiece's trainer, and the sample as it gets it."""


def main() -> None:
    """Trains, measures and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.identifiers", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="work directory of a build")
    parser.add_argument("--vocab-size", type=int, default=64_000)
    parser.add_argument("--character-coverage", type=float, default=0.9999)
    parser.add_argument("--sample-bytes", type=int, default=60_000_000, help="of training text")
    args = parser.parse_args()
    text = read(args.corpus, args.sample_bytes)
    shared = {"vocab_size": args.vocab_size, "character_coverage": args.character_coverage}
    with tempfile.TemporaryDirectory() as directory:
        coders: dict[str, Coder] = {}
        trained: dict[str, Candidate] = {}
        for name, make in CANDIDATES.items():
            options, sample = make(text)
            print(f"training: {name}", file=sys.stderr, flush=True)
            trained[name] = train(sample, {**PRESET, **shared, **options})
            path = Path(directory, f"{len(coders)}.model")
            path.write_bytes(trained[name].model)
            coders[name] = Opened(path)
        print("\n".join(table(text, trained, coders)))


def read(corpus: Path, sample_bytes: int) -> Text:
    """Of the sample that the corpus's tokenizer was trained on, about so much; held-out text."""
    manifest = manifests.load(corpus / "manifest.json")
    code_types = manifest.recipe["near"]["shingles"]["code_types"]
    chosen = list(trained_on(corpus, manifest, sample_bytes))
    code = [text for kind, text in chosen if kind in code_types]
    tokenizer = open_tokenizer(corpus / manifest.tokenizer)
    return Text([text for _, text in chosen], code, heldout_rows(manifest, corpus, tokenizer))


def train(sample: Sequence[str], options: Mapping[str, Any]) -> Candidate:
    """A model of SentencePiece's trainer."""
    model, start = io.BytesIO(), time.monotonic()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sample), model_writer=model, **options
    )
    return Candidate(model.getvalue(), time.monotonic() - start)


def _names(text: Text, number: int, kinds: Sequence[str]) -> dict[str, Any]:
    """The most frequent identifiers of these kinds as pieces that are matched in any text."""
    counts: Counter[str] = Counter()
    for document in text.code:
        counts.update(n for n in IDENTIFIER.findall(document) if len(n) > 2 and kind_of(n) in kinds)
    names = sorted(counts, key=lambda name: (-counts[name], name))[:number]
    return {"user_defined_symbols": names}


def table(
    text: Text, trained: Mapping[str, Candidate], coders: Mapping[str, Coder]
) -> Iterator[str]:
    """Lines of Markdown: a row a candidate."""
    speed = speeds(coders, speed_texts(text.rows.values()))
    size = sum(len(t.encode()) for t in text.sample) / 1e6
    yield f"{size:.1f} MB of sample, of it {sum(len(t.encode()) for t in text.code) / 1e6:.1f} code"
    yield ""
    for i, (name, coder) in enumerate(coders.items()):
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        cells = {"candidate": name} | _cells(text.rows, coder) | _pieces(trained[name].model)
        cells |= {"MB/s": f"{speed[name]:.1f}", "training s": f"{trained[name].seconds:.0f}"}
        if not i:
            yield f"| {' | '.join(cells)} |"
            yield f"|---|{'---:|' * (len(cells) - 1)}"
        yield f"| {' | '.join(cells.values())} |"


def _cells(rows: Mapping[str, Row], coder: Coder) -> dict[str, str]:
    figures = {name: measure(coder, row) for name, row in rows.items()}
    sums = {kind: Fertility() for kind in IDENTIFIERS}
    for found in figures.values():
        for kind in IDENTIFIERS:
            sums[kind].merge(found.fertility.get(kind, Fertility()))
    cells = {kind: f"{f.tokens / max(f.units, 1):.2f}" for kind, f in sums.items()}
    compound = [sums[kind] for kind in IDENTIFIERS[:3]]
    short = sum(f.short for f in compound) / max(sum(f.units for f in compound), 1)
    cells["compound in 2 at most"] = f"{short:.0%}"
    for language, label in (("", "code"), (CHINESE, "Chinese"), (ENGLISH, "English")):
        chosen = [(r, figures[n]) for n, r in rows.items() if r.language == language]
        tokens = max(sum(f.tokens for _, f in chosen), 1)
        characters = sum(row.characters for row, _ in chosen)
        cells[f"{label}, characters a token"] = f"{characters / tokens:.2f}"
        if language == CHINESE:
            cells["Chinese, coverage"] = _coverage([f for _, f in chosen])
    return cells


def _coverage(figures: Sequence[Figures]) -> str:
    return f"{sum(f.covered for f in figures) / max(sum(f.spanned for f in figures), 1):.2%}"


def _pieces(model: bytes) -> dict[str, str]:
    """How many pieces have Han characters, and with what else."""
    spm = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [spm.id_to_piece(i).replace("\u2581", "") for i in range(spm.vocab_size())]
    han = [piece for piece in pieces if re.search(f"[{HAN}]", piece)]
    return {
        "Han pieces": f"{len(han):,}",
        "with punctuation": f"{sum(bool(re.search(r'[^\w\s]', p)) for p in han):,}",
        "with Latin": f"{sum(bool(re.search('[A-Za-z]', p)) for p in han):,}",
    }


if __name__ == "__main__":
    main()
