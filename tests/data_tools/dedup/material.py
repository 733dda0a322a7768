"""Documents, a run of the stages over them, and a second, naive reading of similarity."""

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from data_tools.dedup import near
from data_tools.dedup.config import NearConfig
from data_tools.document import Document, table_writer
from data_tools.drops import VERDICTS
from data_tools.engines import Engine, InProcess
from data_tools.heldout import HeldoutConfig
from data_tools.stage import Input, Run, StageResult, run_stage

HAN = [chr(c) for c in range(0x4E00, 0x5200)]
WORDS = [f"{a}{b}{c}" for a in ("re", "con", "sub", "over") for b in "aeiou" for c in "lmnrst"]


def chinese(seed: object, length: int) -> list[str]:
    """Units of prose."""
    return random.Random(f"zh {seed}").choices(HAN, k=length)


def english(seed: object, length: int) -> list[str]:
    """Units of prose, to be joined by spaces."""
    return random.Random(f"en {seed}").choices(WORDS, k=length)


def edited(units: Sequence[str], seed: object, edits: int, fresh: Sequence[str]) -> list[str]:
    """A copy with some units replaced."""
    rng = random.Random(f"edit {seed}")
    result = list(units)
    for place in rng.sample(range(len(result)), edits):
        result[place] = rng.choice(fresh)
    return result


def document(
    text: str, offset: int, type: str = "web", source: str = "s", quality: float = 1.0
) -> Document:
    """A document; its id comes from source and offset."""
    return replace(Document.make(text, source, type, "f", offset, {}), quality=quality)


def put(directory: Path, documents: Sequence[Document]) -> tuple[Input, ...]:
    """A table of documents."""
    directory.mkdir(parents=True)
    path = directory / "documents.parquet"
    with table_writer(path) as write:
        for d in documents:
            write(d)
    return (Input(path, directory.name, hash_of(path)),)


def hash_of(path: Path) -> str:
    """The identity of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def runner(root: Path, engine: Engine, results: dict[str, StageResult]) -> Run:
    """Runs stages under a directory and keeps what they say."""

    def run(stage, partitions):
        results[stage.name] = run_stage(stage, partitions, root / stage.name, engine)
        return results[stage.name]

    return run


DEFAULT = NearConfig()
NO_HELDOUT = HeldoutConfig(0)


@dataclass(frozen=True)
class Outcome:
    """What near dedup said about some documents."""

    verdicts: Mapping[bytes, str]
    """Id -> detail."""
    rules: Mapping[bytes, str]
    representatives: set[bytes]
    clusters: list[dict]
    """Rows of all clusters.parquet, in the order of their clusters."""
    results: dict[str, StageResult]

    def kept_for(self, id: bytes) -> bytes:
        """The document that a dropped one was dropped for."""
        return bytes.fromhex(re.findall(r"to document ([0-9a-f]{32})", self.verdicts[id])[0])


def near_dedup(
    root: Path,
    documents: Sequence[Document],
    config: NearConfig = DEFAULT,
    partitions: int = 1,
    engine: Engine | None = None,
    heldout: HeldoutConfig = NO_HELDOUT,
) -> Outcome:
    """Cuts documents into partitions, runs near dedup, gathers what it wrote."""
    inputs = []
    for i in range(partitions):
        here = put(root / f"p-{i:05d}", documents[i::partitions])
        inputs.append((f"p-{i:05d}", here))
    results: dict[str, StageResult] = {}
    last = near.find(runner(root, engine or InProcess(), results), inputs, config, heldout)
    verdicts, rules, representatives = {}, {}, set()
    for name, _ in inputs:
        for file in last.about(name):
            table = pq.read_table(file.path, schema=VERDICTS)
            rules |= zip(table["id"].to_pylist(), table["rule"].to_pylist(), strict=True)
            verdicts |= zip(table["id"].to_pylist(), table["detail"].to_pylist(), strict=True)
        for file in last.about(name, ".representatives"):
            representatives |= set(pq.read_table(file.path)["id"].to_pylist())
    files = [i.path for c in last.commits for i in c.input("clusters.parquet")]
    clusters = [row for path in files for row in pq.read_table(path).to_pylist()]
    return Outcome(verdicts, rules, representatives, clusters, results)


def naive_set(document: Document, size: int = 5, shortest: int = 20) -> set:
    """The shingles of a document, by regular expressions; a short text is one."""
    if document.type == "code":
        units = re.findall(r"\w+|[^\w\s]", document.text)
    else:
        units = re.findall(r"[一-鿿]|[^\W_一-鿿]+", document.text.lower())
    found = [tuple(units[i : i + size]) for i in range(len(units) - size + 1)]
    return set(found) if len(found) >= shortest else {document.text}


def naive_jaccard(one: Document, other: Document) -> float:
    """Exact similarity."""
    if one.text == other.text:
        return 1.0
    a, b = naive_set(one), naive_set(other)
    return len(a & b) / len(a | b)
