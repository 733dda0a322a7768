"""`python -m bench.salted --out=DIR`: a corpus of real text, salted with what a build must find.

DIR/raw/<source>/     files in the formats of the readers
DIR/truth.jsonl       a line for each salt: what was done to which document
DIR/inventory.json    bytes of each source, and why those are missing that cannot be had here
DIR/recipe.json       `python -m data_tools build --config=DIR/recipe.json --workdir=DIR`
DIR/full.json         the same with all rules for its types of text

The same text gives the same bytes: all choices hang on hashes of names. A smaller corpus has the
same mixture.
"""

import argparse
import hashlib
import itertools
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import material, salts
from bench.material import Missing, Text
from bench.near_copies import CODE, PROSE, distinct, near_copy
from bench.raw_files import FORMATS, Row, write_broken
from bench.salted_recipe import ALL_RULES, FEW_RULES, recipe
from jaxlm.schema import to_dict

MEGABYTES = 200
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
PAIRS = {"novel": 40, "reference": 18, "manual": 60, "stdlib": 40, "packages": 240}
"""Source -> near copies at each level."""
EXACT = 100
"""Exact copies of documents of one source."""
SHORT = range(5, 31)
"""Characters of a review that stands alone."""
PAGE_REVIEWS = 12
"""Longer reviews on one page."""
PERSONAL, BROKEN_TEXT = 0.1, 0.05
"""Share of the web documents with personal data; of the manual pages that become mojibake."""
COPIED = range(1_000, 12_000)
"""Characters of a module or manual page that is copied."""
SPARE = 8
"""Texts that only broken files hold."""


@dataclass
class Corpus:
    """What is to be written, and the truth about it."""

    share: float
    """Of the full size."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Source -> documents."""
    truth: list[dict[str, Any]] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)
    """Texts for the files that are broken."""
    missing: dict[str, str] = field(default_factory=dict)
    """Source -> why it cannot be had."""

    def add(self, source: str, row: Row) -> None:
        """Puts a document into a source."""
        self.rows.setdefault(source, []).append(row)

    def count(self, number: int) -> int:
        """So many at this size."""
        return max(2, round(number * self.share))

    def says(self, salt: str, source: str, name: str, what: Mapping[str, Any]) -> None:
        """Records a salt."""
        self.truth.append({"salt": salt, "source": source, "name": name, **what})


def chance(*parts: str) -> float:
    """A number from 0 to 1 that hangs on the parts alone."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def shuffled(texts: Sequence[Text], salt: str) -> list[Text]:
    """In the order of a hash of their names."""
    return sorted(texts, key=lambda t: chance(salt, t.name))


# ---- sources and their salts ---------------------------------------------------------------------


def add_novel(corpus: Corpus, cache: Path) -> None:
    """Passages of the novel, near and exact copies of some."""
    texts = shuffled(list(material.novel(cache)), "novel")[: corpus.count(384)]
    for text in texts:
        corpus.add("novel", Row(text.name, text.text))
    add_near(corpus, "novel", texts, "novel", "copy of {}")
    add_exact(corpus, "novel", texts[::-1], "reviews", "copy of {}")


def add_reference(corpus: Corpus, cache: Path) -> None:
    """The language reference, near copies of some."""
    texts = shuffled(list(material.joined(material.reference(cache), 2)), "reference")
    corpus.spare = [text.text for text in texts[-SPARE:]]
    texts = texts[: corpus.count(len(texts) - SPARE)]
    for text in texts:
        corpus.add("reference", Row(text.name, text.text))
    add_near(corpus, "reference", texts, "reference", "copy of {}")


def add_manual_pages(corpus: Corpus, cache: Path) -> None:
    """Chinese manual pages; some as mojibake, some copied."""
    texts = shuffled(list(material.manual_pages(cache)), "manual")
    kept = []
    for text in texts[: corpus.count(len(texts))]:
        if chance("mojibake", text.name) < BROKEN_TEXT and len(text.text) > 500:
            encoding = ("cp1252", "latin-1", "gbk")[len(text.name) % 3]
            name = f"mojibake {text.name}"
            original = text.text[:3000].strip()
            corpus.add("reference", Row(name, salts.mojibake(original, encoding)))
            corpus.says("mojibake", "reference", name, {"encoding": encoding, "text": original})
        else:
            corpus.add("manual", Row(f"{text.name}.txt", text.text))
            kept.append(text._replace(name=f"{text.name}.txt"))
    long = [t for t in kept if len(t.text) in COPIED]
    add_near(corpus, "manual", long, "manual", "copies/{}")
    add_exact(corpus, "manual", long[::-1], "descriptions", "copy of {}")


def add_reviews(corpus: Corpus, cache: Path) -> None:
    """Short reviews one by one, longer ones on pages of sites."""
    texts = shuffled(list(material.reviews(cache)), "reviews")
    texts = texts[: corpus.count(len(texts))]
    short = [t for t in texts if len(t.text) in SHORT]
    for text in itertools.compress(short, distinct([t.text for t in short])):
        corpus.add("short", Row(text.name, text.text))
        corpus.says("short", "short", text.name, {})
    longer = [t for t in texts if len(t.text) >= SHORT.stop]
    for number, batch in enumerate(itertools.batched(longer, PAGE_REVIEWS)):
        page = Text(f"reviews {number}", "\n".join(t.text for t in batch))
        add_page(corpus, "crawl" if number % 4 == 0 else "reviews", page)


def add_crawl(corpus: Corpus, cache: Path) -> None:
    """Real pages beside those of the reviews."""
    for page in material.pages(cache):
        corpus.add("crawl", Row(f"https://www.debian.example/{page.name}", page.text))


def add_descriptions(corpus: Corpus, cache: Path) -> None:
    """What packages say of themselves, on pages of sites."""
    texts = shuffled(list(material.descriptions(cache)), "descriptions")
    for text in texts[: corpus.count(len(texts))]:
        add_page(corpus, "descriptions", text)


def add_modules(corpus: Corpus, cache: Path) -> None:
    """Modules of the standard library, near and exact copies of them among the packages."""
    add_tree(corpus, "stdlib", material.standard_library(cache), "packages")


def add_packages(corpus: Corpus, cache: Path) -> None:
    """The same of packages, their copies in the other tree."""
    add_tree(corpus, "packages", material.packages(cache), "stdlib")


def add_tree(corpus: Corpus, source: str, found: Iterator[Text], to: str) -> None:
    """Only what is copied and the copies: the rest of a tree fills the corpus up at the end."""
    modules = [t for t in found if len(t.text) in COPIED and t.name.endswith(".py")]
    pairs = corpus.count(PAIRS[source]) * len(LEVELS)
    texts = shuffled(modules, "code")[: pairs + corpus.count(EXACT)]
    for text in texts:
        corpus.add(source, Row(text.name, text.text))
    add_near(corpus, source, texts, to, "salted/{}")
    add_exact(corpus, source, texts[pairs:], to, "salted/{}")


def add_near(corpus: Corpus, source: str, texts: list[Text], to: str, name: str) -> None:
    """A copy of each text at a known similarity, long texts first for the highest levels."""
    code = source in ("stdlib", "packages")
    pairs = min(corpus.count(PAIRS[source]), len(texts) // len(LEVELS))
    pattern = CODE if code else PROSE
    found = {u for t in texts[-50:] for u in pattern.findall(t.text) if u.isalpha()}
    words = sorted(found)
    chosen = sorted(texts[: pairs * len(LEVELS)], key=lambda t: (len(t.text), t.name))
    for number, text in enumerate(chosen):
        copy = near_copy(text.text, LEVELS[number // pairs], words, code, f"{source} {text.name}")
        new = name.format(text.name)
        corpus.add(to, Row(new, copy.text))
        of = {"source": source, "name": text.name}
        corpus.says("near", to, new, {"of": of, "jaccard": round(copy.jaccard, 4)})


def add_exact(corpus: Corpus, source: str, texts: list[Text], to: str, name: str) -> None:
    """The texts as they are, in another place."""
    for text in texts[: corpus.count(EXACT)]:
        new = name.format(text.name)
        corpus.add(to, Row(new, text.text))
        corpus.says("exact", to, new, {"of": {"source": source, "name": text.name}})


def add_page(corpus: Corpus, source: str, text: Text) -> None:
    """A page of a site: with lines of boilerplate, or with personal data."""
    sites = salts.sites()
    site = sites[int(chance("site", text.name) * len(sites))]
    if source == "crawl":
        text = text._replace(name=f"https://{site.host}/{text.name.replace(' ', '/')}")
    rng = random.Random(f"page {source} {text.name}")
    if rng.random() < PERSONAL:
        page, values = salts.with_personal(text.text, rng)
        found = [value._asdict() for value in values]
        corpus.says("personal", source, text.name, {"values": found})
    else:
        page, lines = salts.with_lines(text.text, site, rng)
        corpus.says("boilerplate", source, text.name, {"lines": lines, "text": text.text})
    corpus.add(source, Row(text.name, page, site.host))


SOURCES: dict[str, Callable[[Corpus, Path], None]] = {
    "novel": add_novel,
    "reference": add_reference,
    "manual": add_manual_pages,
    "reviews": add_reviews,
    "crawl": add_crawl,
    "descriptions": add_descriptions,
    "stdlib": add_modules,
    "packages": add_packages,
}


# ---- writing -------------------------------------------------------------------------------------


def build(out: Path, cache: Path, megabytes: float) -> dict[str, str]:
    """Writes the corpus; returns the sources that cannot be had, with the reasons."""
    corpus = Corpus(share=min(1.0, megabytes / MEGABYTES))
    shutil.rmtree(out / "raw", ignore_errors=True)
    for name, add in SOURCES.items():
        try:
            add(corpus, cache)
        except Missing as e:
            corpus.missing[name] = str(e)
    for source, write in FORMATS.items():
        (out / "raw" / source).mkdir(parents=True)
        write(out / "raw" / source, corpus.rows.get(source, []))
    for broken in write_broken(out / "raw", corpus.spare):
        corpus.truth.append({"salt": "broken", **broken._asdict()})
    _fill(out / "raw", cache, round(megabytes * 1e6))
    for name, rules in (("recipe", FEW_RULES), ("full", ALL_RULES)):
        config = to_dict(recipe(corpus.rows, rules))
        (out / f"{name}.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in corpus.truth)
    (out / "truth.jsonl").write_text("".join(lines), encoding="utf-8")
    sizes = {s: size_of(out / "raw" / s) for s in FORMATS}
    inventory = {"bytes": sizes, "missing": corpus.missing}
    (out / "inventory.json").write_text(json.dumps(inventory, indent=1), encoding="utf-8")
    return corpus.missing


def _fill(raw: Path, cache: Path, size: int) -> None:
    """More files of the standard library and the packages, until the corpus has its size."""
    left = size - sum(size_of(raw / s) for s in FORMATS)
    trees = {"stdlib": material.standard_library, "packages": material.packages}
    texts = [(source, text) for source, tree in trees.items() for text in tree(cache)]
    texts.sort(key=lambda found: chance("fill", found[0], found[1].name))
    for source, text in texts:
        if left <= 0:
            return
        path = raw / source / text.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.text, encoding="utf-8", newline="")
            left -= path.stat().st_size
    print(f"all real code of this machine is in, {left / 1e6:.1f} MB less than asked for")


def size_of(directory: Path) -> int:
    """Bytes of the files below it."""
    return sum(p.stat().st_size for p in directory.rglob("*") if p.is_file())


def main() -> int:
    """The command line; returns 1 when a source is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.salted", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--cache", type=Path, required=True, help="keeps what is downloaded")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="raw bytes, about")
    args = parser.parse_args()
    missing = build(args.out, args.cache.resolve(), args.megabytes)
    inventory = json.loads((args.out / "inventory.json").read_text(encoding="utf-8"))
    for source, size in inventory["bytes"].items():
        print(f"{source}: {size / 1e6:.1f} MB")
    for source, reason in missing.items():
        print(f"{source} is missing: {reason}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
