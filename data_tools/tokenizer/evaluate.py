"""`tokenizer evaluate`: a corpus's tokenizer on its held-out text, beside others.

Writes tokenizer_evaluation.md, .html and .json into the work directory.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_tools.document import DataError
from data_tools.tokenizer import table
from data_tools.tokenizer.coder import Coder, Opened
from data_tools.tokenizer.fertility import KINDS, Fertility
from data_tools.tokenizer.figures import Figures, measure, speed_texts, speeds
from data_tools.tokenizer.peers import PEERS, check_library
from data_tools.tokenizer.texts import CHINESE, Row, heldout_rows
from data_tools.tokenizer.trained_on import trained_on
from jaxlm.data import manifest as manifests
from jaxlm.data.manifest import Manifest
from jaxlm.data.tokenizer import TokenizerError
from jaxlm.site import check_writable
from jaxlm.workdir import write_json

NAME = "tokenizer_evaluation"
"""Of the files that are written: what tokenizers lie in has other names."""
OWN = "this corpus"
LEAST_COVERAGE = 0.995
"""Of the characters of Chinese text that the corpus's own tokenizer is to have pieces for."""


def evaluate(workdir: Path, given: Sequence[Path], peers: bool, sample_bytes: int) -> int:
    """Measures, writes and prints the tables; returns the exit code, 2 when a check fails.

    `given`: other tokenizers; one that cannot be used is in the table with the reason. `peers`:
    others are trained on `sample_bytes` of the text that the corpus's own was trained on.
    """
    for path in given:
        if not path.exists():
            raise DataError(
                f"--tokenizer={path}: no such file or directory; name a SentencePiece model, or a "
                "tokenizer.json or a directory with one"
            )
    if peers:
        check_library()
    corpus = manifests.load(workdir / "manifest.json")
    check_writable(workdir)
    own = _own(workdir, corpus)
    tell("decoding held-out text")
    rows = heldout_rows(corpus, workdir, own.tokenizer)
    if not rows:
        fraction = corpus.setting("heldout.fraction", float)
        raise DataError(
            f"{workdir}: no document is held out to measure on (config.heldout.fraction="
            f"{fraction}); build with more"
        )
    coders: dict[str, Coder] = {OWN: own}
    notes: dict[str, str] = {}
    refused: dict[str, str] = {}
    for path in given:
        try:
            coders[str(path)] = Opened(path)
        except TokenizerError as e:
            refused[str(path)] = str(e)
    if peers:
        _add_peers(workdir, corpus, sample_bytes, coders, notes)
    data = _measure(rows, coders) | {
        "tokenizer_hash": corpus.tokenizer_hash,
        "missing": _missing(corpus, rows.values()),
        "notes": notes,
        "refused": refused,
    }
    data["checks"] = _checks(data)
    _write(workdir, data)
    print(table.markdown(data))
    for fault in data["checks"]["faults"]:
        tell(fault)
    return DataError.exit_code if data["checks"]["faults"] else 0


def tell(message: str) -> None:
    """A line of progress."""
    print(message, file=sys.stderr, flush=True)


def _own(workdir: Path, corpus: Manifest) -> Opened:
    own = Opened(workdir / corpus.tokenizer)
    found = own.tokenizer.hash()
    if found != corpus.tokenizer_hash:
        raise DataError(
            f"{workdir / corpus.tokenizer}: is the tokenizer {found}, the shards were made with "
            f"{corpus.tokenizer_hash}; put that one back, or build again"
        )
    return own


def _missing(corpus: Manifest, rows: Iterable[Row]) -> list[str]:
    """Types of the corpus without held-out text."""
    return sorted({s.type for s in corpus.shards} - {row.type for row in rows})


# ---- peers ---------------------------------------------------------------------------------------


def _add_peers(
    workdir: Path,
    corpus: Manifest,
    sample_bytes: int,
    coders: dict[str, Coder],
    notes: dict[str, str],
) -> None:
    """Trains each kind of peer; its note says on what and how long."""
    texts = [text for _, text in trained_on(workdir, corpus, sample_bytes)]
    if not texts:
        raise DataError(f"--sample-bytes={sample_bytes}: chooses no piece of text; ask for more")
    size = sum(len(text.encode()) for text in texts) / 1e6
    reserved = [f"<reserved_{i}>" for i in range(corpus.setting("tokenizer.reserved", int))]
    for name, train in PEERS.items():
        tell(f"training {name} on {size:,.1f} MB")
        start = time.monotonic()
        coders[name] = train(texts, corpus.vocab_size, reserved)
        notes[name] = f"trained on {size:,.1f} MB in {time.monotonic() - start:,.0f} s"


# ---- figures -------------------------------------------------------------------------------------


def _measure(rows: Mapping[str, Row], coders: Mapping[str, Coder]) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    for name, coder in coders.items():
        tell(f"measuring {name}")
        figures = {row.name: measure(coder, row) for row in rows.values()}
        measured[name] = {
            "vocab_size": coder.vocab_size,
            "rows": {name: _of_row(rows[name], f) for name, f in figures.items()},
            "fertility": _fertility(figures.values()),
        }
    tell("measuring speed")
    for name, speed in speeds(coders, speed_texts(rows.values())).items():
        measured[name]["mb_per_s"] = speed
    return {
        "rows": {
            row.name: {
                "type": row.type,
                "language": row.language,
                "documents": len(row.texts),
                "characters": row.characters,
                "bytes": row.bytes,
            }
            for row in rows.values()
        },
        "tokenizers": measured,
    }


def _of_row(row: Row, figures: Figures) -> dict[str, Any]:
    return {
        "tokens": figures.tokens,
        "characters_per_token": row.characters / max(figures.tokens, 1),
        "bytes_per_token": row.bytes / max(figures.tokens, 1),
        "spanned": figures.spanned,
        "covered": figures.covered,
        "failed": figures.failed,
        "example": figures.example,
    }


def _fertility(figures: Iterable[Figures]) -> dict[str, Any]:
    """By kind, over all rows."""
    sums = {kind: Fertility() for kind in KINDS}
    for found in figures:
        for kind, fertility in found.fertility.items():
            sums[kind].merge(fertility)
    return {kind: asdict(total) for kind, total in sums.items() if total.units}


def _checks(data: Mapping[str, Any]) -> dict[str, Any]:
    """The share of Chinese characters covered, and what is wrong with the corpus's tokenizer."""
    own = data["tokenizers"][OWN]["rows"]
    chinese = [own[name] for name, row in data["rows"].items() if row["language"] == CHINESE]
    spanned, covered = (sum(row[key] for row in chinese) for key in ("spanned", "covered"))
    coverage = covered / spanned if spanned else None
    faults = []
    if coverage is not None and coverage < LEAST_COVERAGE:
        faults.append(
            f"coverage of held-out Chinese text is {coverage:.3%}, below {LEAST_COVERAGE:.1%}: "
            "raise config.tokenizer.character_coverage, or train on more Chinese text"
        )
    if failed := sum(row["failed"] for row in own.values()):
        faults.append(f"{failed} held-out documents do not come back exactly; see {NAME}.json")
    return {"chinese_coverage": coverage, "least_coverage": LEAST_COVERAGE, "faults": faults}


def _write(workdir: Path, data: Mapping[str, Any]) -> None:
    """The figures and the tables, each file whole or not at all."""
    write_json(workdir / f"{NAME}.json", data)
    for name, text in (
        (f"{NAME}.md", table.markdown(data)),
        (f"{NAME}.html", table.page(data)),
    ):
        temporary = workdir / f"{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(workdir / name)
