"""A fuzzer of the readers: malformed files of every format, the same for the same seed.

python -m tests.data_tools.fuzz DIRECTORY [--seed=0] [--rounds=12]

Reads each file in the read stage and prints, as JSON, what was seen. A file that brings the process
down is named in DIRECTORY/last.
"""

import argparse
import bz2
import gzip
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard

from data_tools.document import read_tables
from data_tools.read.partition import READ, plan
from data_tools.source import SourceConfig
from tests.data_tools import raw

LIMIT = 1 << 20
"""`max_record_bytes` of the sources."""
BEFORE, AFTER = "a good record before", "a good record after"


@dataclass(frozen=True)
class Kind:
    """Files of one suffix: their format, a whole one, and how a record is written, if there are."""

    format: str
    whole: bytes
    record: Callable[[str], bytes] | None = None
    member: Callable[[bytes], bytes] = bytes
    """Around each record: the compression of archives."""


def kinds() -> dict[str, Kind]:
    """By suffix."""
    lines = _line("one") + _line("two 二") * 20
    page = raw.page("words 词 " * 30)
    warc = b"".join(raw.response(raw.page(f"page {i}")) for i in range(8))
    wiki = "".join([raw.HEAD, *(raw.wiki_page(i, f"T{i}", "'''x''' [[y]]") for i in range(8))])
    talk = b"".join(_talk(f"q {i}") for i in range(9))
    code = b"# MIT License\nx = 1\n" * 30
    zstd = zstandard.ZstdCompressor().compress
    return {
        ".txt": Kind("txt", "text 文字\n".encode() * 40),
        ".html": Kind("html", page),
        ".py": Kind("source_tree", code),
        ".jsonl": Kind("jsonl", lines, _line),
        ".jsonl.gz": Kind("jsonl", _gzip(lines), _line),
        ".jsonl.zst": Kind("jsonl", zstd(lines), _line),
        ".jsonl.bz2": Kind("jsonl", bz2.compress(lines), _line),
        ".parquet": Kind("parquet", _parquet()),
        ".warc": Kind("warc", warc, _response),
        ".warc.gz": Kind("warc", _members(warc), _response, _gzip),
        ".xml": Kind("mediawiki", wiki.encode(), _wiki),
        ".xml.bz2": Kind("mediawiki", bz2.compress(wiki.encode()), _wiki, bz2.compress),
        ".json": Kind("dialogue", b"[" + b",".join(talk.splitlines()) + b"]"),
        ".dialogue.jsonl": Kind("dialogue", talk, _talk),
    }


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _line(words: str) -> bytes:
    return json.dumps({"text": words}, ensure_ascii=False).encode() + b"\n"


def _talk(words: str) -> bytes:
    turns = [{"from": "human", "value": words}, {"from": "gpt", "value": "好"}]
    return json.dumps({"conversations": turns}, ensure_ascii=False).encode() + b"\n"


def _response(words: str) -> bytes:
    return raw.response(raw.page(words))


def _wiki(words: str) -> bytes:
    return raw.wiki_page(len(words), "Title", words).encode()


def _members(warc: bytes) -> bytes:
    return b"".join(_gzip(b"WARC/1.0" + r) for r in warc.split(b"WARC/1.0")[1:])


def _parquet() -> bytes:
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / "fuzz-whole.parquet"
    raw.write_parquet(path)
    data = path.read_bytes()
    path.unlink()
    return data


# ---- what is done to a file ----------------------------------------------------------------------


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _flip(data: bytes, rng: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(rng.choice((1, 3, 20))):
        broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(broken)


def _zeros(data: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(data)), rng.randint(1, 200)
    return data[:at] + bytes(length) + data[at + length :]


def _loss(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 100) :]


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice((1, 50, 5000))) + data[at:]


def _random(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 4000))


def _encoding(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("utf-8", "replace").replace("\ufffd", "é")
    return text.encode(rng.choice(("utf-16", "utf-32-le", "gb18030", "latin-1")), "replace")


def _huge(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return (
        data[:at] + rng.choice((b"x", b" ", b"[", b"<p>", b"{{", b"\\", b'"')) * LIMIT + data[at:]
    )


def _nested(data: bytes, rng: random.Random) -> bytes:
    inner = rng.choice(list(kinds().values())).whole
    return rng.choice((_gzip(data), inner, data + inner, _gzip(inner) + data))


def _bomb(data: bytes, rng: random.Random) -> bytes:
    zeros = bytes(1 << 26)
    return rng.choice(
        (
            gzip.compress(zeros, 1, mtime=0),
            bz2.compress(zeros[: 1 << 24]),
            zstandard.compress(zeros),
        )
    )


def _tokens(data: bytes, rng: random.Random) -> bytes:
    """What means something to a parser, in any order."""
    words = (
        b'{ } [ ] " \\ , : null 1e999 <page> </page> <text> <id> <ul> <li> <a> <div> {{ }} [[ ]] '
    )
    words += (
        b"{| |} <ref> <!-- --> WARC/1.0\r\n Content-Length: 99\r\n\r\n \r\n\r\n PAR1 BZh91AY&SY "
    )
    words += b"\x1f\x8b\x08\x00 \xef\xbb\xbf \xff\xfe \xed\xa0\x80 \x00 &#x110000; &amp; <![CDATA["
    return b"".join(rng.choices(words.split(b" "), k=rng.choice((5, 100, 20_000))))


MUTATIONS = (_cut, _flip, _zeros, _loss, _noise, _random, _encoding, _huge, _nested, _tokens)


@dataclass(frozen=True)
class File:
    """A malformed file, and the texts that have to come out of it all the same."""

    name: str
    format: str
    data: bytes
    good: tuple[str, ...] = ()


def files(seed: int, rounds: int) -> Iterator[File]:
    """Every mutation of every kind, `rounds` // 3 times; and garbage between two good records."""
    rng = random.Random(seed)
    number = 0
    for suffix, kind in kinds().items():
        for mutate in (*MUTATIONS * (rounds // 3), _bomb, lambda data, rng: b""):
            yield File(f"{number:04d}{suffix}", kind.format, mutate(kind.whole, rng))
            number += 1
        for _ in range(rounds if kind.record else 0):
            yield salted(f"{number:04d}{suffix}", kind, rng)
            number += 1


def salted(name: str, kind: Kind, rng: random.Random) -> File:
    """A record that was damaged, between two good ones. In a compressed file that is one stream
    the damage was done before it was compressed."""
    assert kind.record is not None
    mutate = rng.choice((_cut, _flip, _zeros, _random, _tokens))
    if kind.member is bytes:
        middle = mutate(kind.record("the bad one"), rng)
    else:
        middle = mutate(kind.member(kind.record("the bad one")), rng)
    end = (
        b"\n"
        if kind.format in ("jsonl", "dialogue")
        else b"\r\n\r\n"
        if kind.member is bytes
        else b""
    )
    parts = [kind.member(kind.record(BEFORE)), middle, end, kind.member(kind.record(AFTER))]
    data = b"".join(parts)
    compress = {"gz": _gzip, "zst": zstandard.compress, "bz2": bz2.compress}
    if kind.format == "jsonl" and (last := name.rpartition(".")[2]) in compress:
        data = compress[last](data)
    return File(name, kind.format, data, (BEFORE, AFTER))


# ---- reading them --------------------------------------------------------------------------------


def read(file: File, directory: Path) -> tuple[Counter[str], list[str]]:
    """Runs the read stage on one file; bad places by reason, and what is wrong with the result."""
    (directory / "last").write_text(file.name)
    path = directory / "raw" / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.data)
    encoding = "auto" if file.name[3] in "02468" else "utf-8"
    source = SourceConfig(
        "s", "web", file.format, "raw", (file.name,), encoding=encoding, max_record_bytes=LIMIT
    )
    reasons: Counter[str] = Counter()
    lost, wrong = set(file.good), []
    documents = 0
    for partition in plan(source, directory, 1 << 16):
        out = directory / "out"
        out.mkdir(exist_ok=True)
        report = READ.run(partition, out)
        documents += report["documents"]
        for document in read_tables([out / "documents.parquet"]):
            lost -= {good for good in lost if good in document.text}
        reasons += Counter(report["bad"])
        for bad in report["bad_samples"]:
            if not bad["place"] or bad["path"] != file.name:
                wrong.append(f"a bad place without a name: {bad}")
        if report["bad"] and pq.read_metadata(out / "bad.parquet").num_rows != report_total(report):
            wrong.append("the table and the report count differently")
    path.unlink()
    wrong += [f"{good!r} is lost" for good in sorted(lost)]
    if not documents and not reasons:
        wrong.append("neither a document nor a bad place")
    return reasons, [f"{file.name}: {what}" for what in wrong]


def report_total(report: dict[str, Any]) -> int:
    """Bad places of a partition."""
    return sum(report["bad"].values())


def main() -> None:
    """Reads every file; prints one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    reasons: Counter[str] = Counter()
    slowest = (0.0, "")
    wrong: list[str] = []
    count = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for file in files(args.seed, args.rounds):
        count += 1
        begun = time.monotonic()
        found, faults = read(file, args.directory)
        slowest = max(slowest, (time.monotonic() - begun, file.name))
        reasons += found
        wrong += faults
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = {"files": count, "reasons": reasons, "wrong": wrong, "slowest": slowest}
    print(json.dumps(seen | {"memory_mb": (peak - before) / 1024}, ensure_ascii=False))


if __name__ == "__main__":
    main()
