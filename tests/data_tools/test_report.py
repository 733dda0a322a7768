"""The report: what a person asks about a build, from hostile input too."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from data_tools.recipe import PackConfig
from tests.data_tools import small

HOSTILE = {
    "good.jsonl": "".join(
        json.dumps({"text": small.english(i) + small.chinese(i)}) + "\n" for i in range(60)
    ).encode(),
    "empty.jsonl": b"",
    "binary.jsonl": bytes(range(256)) * 50,
    "long.jsonl": json.dumps({"text": "word " * 1_000_000}).encode(),
    "nul.jsonl": json.dumps({"text": "a\x00b" + small.english(900)}).encode() + b"\n",
    "bom.jsonl": b"\xef\xbb\xbf" + json.dumps({"text": small.english(901)}).encode() + b"\r\n",
    "lone.jsonl": b'{"text": "\\ud800 lone"}\n{"text": "<script>alert(1)</script>"}\n',
    "cut.jsonl.gz": b"\x1f\x8b\x08\x00",
}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("hostile")
    files = {name.replace(".", "__"): data for name, data in HOSTILE.items()}
    pack = PackConfig(chunk_tokens=32, shard_chunks=20_000)
    small.run(replace(small.one_source(workdir, **files), pack=pack), workdir)
    return workdir


def report(workdir: Path) -> dict:
    return json.loads((workdir / "report.json").read_text())


def test_counts(workdir):
    counts = report(workdir)["sources"]["raw"]
    assert counts["files"] == 8
    assert counts["documents"] == 60 + 1 + 1 + 1 + 1
    assert counts["bad"]["empty file"] == 1
    assert counts["bad"]["lone surrogate"] == 1
    assert counts["bad"]["compressed file is cut"] == 1
    assert counts["dropped"] == {"min_length": 1}
    assert counts["kept"] == 63
    assert 1 < counts["kept_text_bytes"] / counts["tokens"] < 8
    assert counts["train"]["padding"] + counts["heldout"]["padding"] <= 4 * 31


def test_bad_places_have_file_and_line(workdir):
    places = {(b["path"], b["line"], b["reason"]) for b in report(workdir)["bad"]["raw"]}
    assert ("empty.jsonl", 0, "empty file") in places
    assert ("lone.jsonl", 1, "lone surrogate") in places
    assert ("cut.jsonl.gz", 1, "compressed file is cut") in places
    assert any(path == "binary.jsonl" for path, _, _ in places)


def test_dropped_samples_have_the_reason_and_the_text(workdir):
    (dropped,) = report(workdir)["dropped"]["raw"]
    assert (dropped["rule"], dropped["path"], dropped["offset"]) == ("min_length", "lone.jsonl", 24)
    assert dropped["detail"] == "25 characters, at least 100 wanted"
    assert dropped["text"] == "<script>alert(1)</script>"


def test_notes(workdir):
    (note,) = report(workdir)["notes"]
    assert re.fullmatch(r"source raw: \d+ bad records or files gave no document", note)


def test_the_page_stands_alone_and_runs_nothing(workdir):
    text = (workdir / "report.html").read_text(encoding="utf-8")
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # pyright: ignore
    parser.feed(text)
    assert not {"script", "link", "img", "iframe"} & set(tags) and tags.count("table") >= 5
    assert "&lt;script&gt;" in text and "src=" not in text and "http" not in text
