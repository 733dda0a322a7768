"""The report: what a person asks about a build, from hostile input too."""

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from data_tools.document import digest
from data_tools.privacy.config import PrivacyConfig
from data_tools.report import lines
from data_tools.report.page import SECTIONS
from data_tools.report.page import page as page_of
from tests.data_tools import eventful, small
from tests.data_tools.eventful import SALTED

COUNTED = {
    "exact_duplicate": 1,
    "contaminated": 1,
    "boilerplate": 1,
    "min_length": 1,
    "quality": 1,
    "privacy": 1,
    "heldout_duplicate": 1,
    "near_duplicate": 1,
    "round_trip": 1,
}
"""What the source web loses, in the order of the stages and of the recipe."""


@pytest.fixture(scope="module")
def report(eventful_build) -> dict:
    return eventful.report(eventful_build)


@pytest.fixture(scope="module")
def page(eventful_build) -> str:
    return (eventful_build / "report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags, attributes and headings of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "h2" and data.strip() in SECTIONS:
            self.headings.append(data)


def test_counts(report):
    counts = report["sources"]["web"]
    assert counts["files"] == eventful.SITES + 2
    assert counts["documents"] == eventful.SITES * eventful.PAGES + len(SALTED)
    assert counts["bad"] == {"compressed file is cut": 1, "broken JSON": 1}
    assert counts["dropped"] == COUNTED
    assert counts["kept"] == counts["documents"] - sum(COUNTED.values())
    for key in ("documents", "tokens"):
        packed = counts["train"][key] + counts["heldout"][key]
        excluded = sum(lost[key] for lost in counts["excluded"].values())
        assert counts["kept" if key == "documents" else key] == packed + excluded
    assert 1 < counts["kept_text_bytes"] / counts["tokens"] < 8


def test_every_funnel_runs_from_what_was_read_to_what_was_kept(report):
    steps = {source: [s["step"] for s in funnel] for source, funnel in report["funnels"].items()}
    assert steps["web"] == steps["zh"] == steps["py"]
    assert [s for s in steps["web"] if s in COUNTED] == list(COUNTED)
    for source, funnel in report["funnels"].items():
        counts = report["sources"][source]
        first, last = funnel[0], funnel[-1]
        assert (first["documents"], first["text_bytes"]) == (
            counts["documents"],
            counts["text_bytes"],
        )
        assert (last["documents"], last["text_bytes"]) == (
            counts["kept"],
            counts["kept_text_bytes"],
        )
        for before, step in itertools.pairwise(funnel):
            assert before["documents"] - step["lost_documents"] == step["documents"]
            assert before["text_bytes"] - step["lost_bytes"] == step["text_bytes"]


def test_bytes_that_a_step_took(report):
    lost = {s["step"]: s["lost_bytes"] for s in report["funnels"]["web"]}
    assert lost["min_length"] == len(SALTED["short"])
    assert lost["exact_duplicate"] == len(SALTED["copy"])
    assert lost["round_trip"] == len(SALTED["round trip"].encode())
    # the line that stood in every page, and the bell in the hostile text
    pages = eventful.SITES * eventful.PAGES
    assert lost["changed by rules"] == pages * (len(eventful.BOILERPLATE) + 1) + 1


def test_samples_stand_side_by_side(report):
    assert set(report["samples"]) == set(COUNTED)
    sides = report["samples"]["min_length"]
    (dropped,) = sides["dropped"]
    assert (dropped["path"], dropped["detail"]) == (
        "salted.jsonl",
        "30 characters, at least 100 wanted",
    )
    assert dropped["excerpt"] == SALTED["short"]
    gone = {row["id"] for both in report["samples"].values() for row in both["dropped"]}
    assert [row["source"] for row in sides["kept"]] == ["web"]
    assert not gone & {row["id"] for both in report["samples"].values() for row in both["kept"]}


@pytest.mark.parametrize("secret", [eventful.MOBILE, eventful.EMAIL, "123456789"])
def test_nothing_private_is_shown(eventful_build, secret):
    shown = [eventful_build / "report.json", eventful_build / "report.html"]
    assert not [path for path in shown if secret in path.read_text(encoding="utf-8")]
    assert secret in (eventful_build / "raw/web/salted.jsonl").read_text()


def test_what_one_type_hides_is_hidden_in_what_its_sources_said(tmp_path):
    address = "han.meimei@mail.cn"
    recipe = eventful.write(tmp_path)
    pages = [
        {"text": f"{small.english(9000 + n)}Write to {address} today\n", "url": f"a{n}.cn"}
        for n in range(40)
    ]
    small.write_jsonl(tmp_path / "raw/web/mail.jsonl", [*pages, {address: 1, "more": 2}])
    privacy = PrivacyConfig(email="keep", types={"web": {"email": "mask"}})
    small.run(replace(recipe, privacy=privacy), tmp_path)
    report = eventful.report(tmp_path)
    assert any(line["text"].startswith("write to ") for line in report["boilerplate"]["lines"])
    assert "mail.jsonl" in {b["path"] for b in report["bad"]["web"]}
    for name in ("report.json", "report.html"):
        assert address not in (tmp_path / name).read_text(encoding="utf-8")
    privacy = PrivacyConfig(types={"web": {"email": "keep"}})
    small.run(replace(recipe, privacy=privacy), tmp_path)
    report = eventful.report(tmp_path)
    for part in ("boilerplate", "bad"):
        assert address in json.dumps(report[part])


def test_boilerplate(report):
    found = report["boilerplate"]
    assert found["types"] == ["web"] and found["found"] == 1
    (line,) = found["lines"]
    assert line["text"] == eventful.BOILERPLATE.lower()
    # the copy of a page is gone before lines are counted
    assert line["documents"] == eventful.SITES * eventful.PAGES + 1
    assert line["sites"] == eventful.SITES + 1
    assert found["removed"] == line["documents"]


def test_privacy(report):
    found = {
        (e["type"], e["policy"], e["source"]): e["found"] for e in report["privacy"]["entities"]
    }
    assert found == {("mobile", "mask", "web"): 1, ("email", "mask", "web"): 1}
    assert report["privacy"]["ner"] == "none"


def test_duplicates(report):
    found = report["duplicates"]
    web = found["sources"]["web"]
    assert found["documents"] == 3
    assert [web[f"{kind}_duplicate"] for kind in ("exact", "near", "heldout")] == [1, 1, 1]
    near, exact = len(SALTED["near"]) + len(SALTED["like held out"]), len(SALTED["copy"])
    assert web["text_bytes"] == near + exact
    counts = report["sources"]["web"]
    passing = (counts["kept_text_bytes"] + near) / (counts["text_bytes"] - exact)
    per_token = counts["kept_text_bytes"] / counts["tokens"]
    assert found["tokens"] == round((exact * passing + near) / per_token)
    kept = sum(c["tokens"] for c in report["sources"].values())
    assert found["gain"] == found["tokens"] / kept
    assert found["near"]["sizes"] == {"2": 2}
    assert report["alarms"] == []


def test_evaluation_sets(report):
    assert report["evaluation"] == [
        {"set": "exam", "texts": 2, "too short": 1, "documents dropped": 1}
    ]


def test_bad_places_have_file_and_place(report):
    places = {(b["path"], b["place"], b["reason"]) for b in report["bad"]["web"]}
    assert places == {
        ("salted.jsonl", f"line {len(SALTED) + 1}", "broken JSON"),
        ("<b>cut.jsonl.gz", "line 1", "compressed file is cut"),
    }


def test_histograms_count_every_document_once(report):
    for source, counts in report["sources"].items():
        here = report["histograms"]["lengths"][source]
        assert sum(here["kept"].values()) == counts["kept"]
        assert sum(here["dropped"].values()) == sum(counts["dropped"].values())
    assert report["histograms"]["lengths"]["web"]["dropped"]["16"] == 1  # 30 characters
    qualities = report["histograms"]["qualities"]
    assert set(qualities) == {"web"}  # the only source with scored rules
    assert qualities["web"]["dropped"]["0.30"] == 1  # 0.5 of 1.5


def test_throughput_tells_of_every_stage(report):
    stages = {row["stage"]: row for row in report["throughput"]}
    assert next(iter(stages)) == "read" and "pack" in stages and "near_duplicates" in stages
    assert stages["clean"]["ran"] == stages["clean"]["partitions"] > 3
    assert stages["clean"]["worker_seconds"] > 0
    assert report["workers"] == 1


def test_notes(report):
    assert report["notes"] == ["source web: 2 bad records or files gave no document"]


def test_the_page_stands_alone_and_runs_nothing(page):
    parsed = Page(page)
    assert set(parsed.tags) & {"script", "link", "img", "iframe", "object", "form"} == set()
    assert parsed.headings == list(SECTIONS)
    assert parsed.tags.count("svg") >= 8
    names = {name for name, _ in parsed.attributes}
    assert not [n for n in names if n.startswith("on") or n in ("src", "style", "srcset")]
    assert all(v and v.startswith("#") for name, v in parsed.attributes if name == "href")
    assert "default-src 'none'" in page


def test_hostile_text_is_text(page):
    assert "&lt;script&gt;alert(&#x27;text&#x27;)&lt;/script&gt;" in page
    assert "&lt;b&gt;cut.jsonl.gz" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)


def test_alarms_and_notes_come_first_and_are_text(report):
    written = page_of(report | {"alarms": ["<i>source</i> lost"], "notes": ["<u>left out"]})
    first = written.partition("<h2")[0]
    assert '<li class="alarm">&lt;i&gt;source&lt;/i&gt; lost</li><li>&lt;u&gt;left out' in first


def test_the_page_is_small_whatever_the_corpus(page):
    assert len(page) < 300_000


def test_lines(eventful_build):
    web = next(iter(lines(eventful_build)))
    assert web.startswith("web: kept 52 of 61 documents (")
    assert "near_duplicate 1" in web and "broken JSON 1" in web


def test_what_a_stage_says_of_a_kept_document_is_not_shown_when_it_falls_later(report):
    """The privacy stage keeps samples; near dedup may drop them afterwards."""
    shown = {row["id"] for sides in report["samples"].values() for row in sides["kept"]}
    offset = len(json.dumps({"text": SALTED["copy"], "url": ""})) + 1
    fallen = digest("web", "salted.jsonl", str(offset)).hex()
    assert fallen not in shown
