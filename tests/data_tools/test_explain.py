"""`explain`: what became of each document, and the way back."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.__main__ import main
from data_tools.document import DataError
from data_tools.explain import documents_of, explain
from data_tools.pack.config import BucketConfig, ExcludeConfig
from data_tools.recipe import Recipe
from jaxlm.data.manifest import ManifestError
from jaxlm.schema import parse
from tests.data_tools import eventful, small
from tests.data_tools.eventful import SALTED


@pytest.fixture(scope="module")
def ids(eventful_build) -> dict[str, str]:
    """Name in `SALTED` -> id; `page` is the one that `copy` is a copy of."""
    lines = documents_of(eventful_build, "salted.jsonl")
    pages = documents_of(eventful_build, "site 0.jsonl")
    return {n: line[:32] for n, line in zip(["page", *SALTED], [pages[0], *lines], strict=True)}


def told(workdir, id: str) -> dict[str, str]:
    """What -> words."""
    lines = [line for line in explain(workdir, id) if not line.startswith(" ")]
    return {line.partition(":")[0]: line.partition(":")[2].strip() for line in lines}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("page", "by exact_duplicate: copy of document {copy}"),
        ("short", "by min_length: 30 characters, at least 100 wanted"),
        ("symbols", r"by quality: quality 0\.333, at least 0\.5 wanted"),
        ("secret", "by privacy: 1 of qq; the policy is to drop the document"),
        ("contaminated", "by contaminated: .*exam.*line 1.*"),
        ("round trip", r"by round_trip: the tokenizer does not give back U\+2581 at character \d+"),
        ("all boilerplate", "by boilerplate: 1 lines of boilerplate and no others"),
    ],
)
def test_why_it_was_dropped(eventful_build, ids, name, words):
    found = told(eventful_build, ids[name])
    assert re.fullmatch(words.replace("{copy}", ids["copy"]), found["dropped"])
    assert "kept" not in found and "shard" not in found


@pytest.mark.parametrize("name", ["page", "short", "contaminated", "all boilerplate"])
def test_how_to_undo(eventful_build, ids, name):
    undo = told(eventful_build, ids[name])["undo"]
    assert undo == f"add {ids[name]!r} to `restored` in the recipe and build again"


def test_what_an_id_cannot_undo(eventful_build, ids):
    assert "change the policy in config.privacy" in told(eventful_build, ids["secret"])["undo"]
    assert "cannot give this text back" in told(eventful_build, ids["round trip"])["undo"]


def test_near_duplicates_name_each_other(eventful_build, ids):
    pair = [ids["near"], ids["near anchor"]]
    one, two = (told(eventful_build, id) for id in pair)
    assert one["cluster"] == two["cluster"]
    kept = pair[0] if "kept" in one else pair[1]
    gone = pair[1] if kept == pair[0] else pair[0]
    assert re.fullmatch(rf"{kept} stays for {gone} \(0\.9\d\d\)", one["cluster"])
    detail = (two if kept == pair[0] else one)["dropped"]
    assert re.fullmatch(rf"by near_duplicate: similarity 0\.9\d+ to document {kept}", detail)


def test_a_kept_document_from_its_file_to_its_shard(eventful_build, ids):
    found = told(eventful_build, ids["mobile"])
    assert found["source"] == "web (web), partition web-00000"
    assert re.fullmatch(r"salted\.jsonl, offset \d+", found["file"])
    assert found["clean"] == "as it was; quality 0.67, broke min_length"
    assert found["privacy"] == "email 1 (mask), mobile 1 (mask)"
    assert re.fullmatch(r"[\d,]+ tokens, split (train|heldout)", found["kept"])
    shard = r"web\.\w+-00000-of-00001 of source web, concat packing"
    assert re.fullmatch(shard, found["shard"])
    chunk = r"([\d,]+) to ([\d,]+): tokens ([\d,]+) \(its BOS\) to ([\d,]+) of the shard"
    numbers = re.fullmatch(chunk, found["chunk"])
    first, last, bos, end = (int(n.replace(",", "")) for n in numbers.groups())
    assert end - bos == int(found["kept"].partition(" ")[0].replace(",", ""))
    assert (first, last) == (bos // 32, (end - 1) // 32)


@pytest.fixture(scope="module")
def by_quality(tmp_path_factory) -> Path:
    """The same text in buckets, without what broke a rule, each chunk by itself."""
    workdir = tmp_path_factory.mktemp("by_quality")
    recipe = eventful.write(workdir)
    pack = replace(
        recipe.pack,
        method="best_fit",
        buckets=(BucketConfig(("web",), (0.5, 0.9), (0.0, 1.0, 1.0)),),
        exclude=(ExcludeConfig(("web",), ("min_length",)),),
    )
    small.run(replace(recipe, pack=pack), workdir)
    return workdir


def test_an_excluded_document(by_quality, ids):
    found = told(by_quality, ids["mobile"])
    assert found["clean"] == "as it was; quality 0.67, broke min_length"
    assert found["excluded"] == "by exclude: min_length: it broke the scored rule min_length"
    assert found["undo"] == (
        "not by its id: change config.pack.exclude and build again, which packs anew"
    )
    assert "kept" not in found and "shard" not in found


def test_a_document_that_best_fit_cut(by_quality, ids):
    """Each piece is told, and all of the document is in one of them."""
    for document in documents_of(by_quality, "site 0.jsonl"):
        found = told(by_quality, document[:32])
        if found.get("kept", "").endswith("split train"):
            break
    shard = r"web\.q2\.train-00000-of-00001 of source web\.q2, best_fit packing"
    assert re.fullmatch(shard, found["shard"])
    lines = [line for line in explain(by_quality, document[:32]) if line.startswith("chunk:")]
    assert len(lines) > 3
    next_token = 0
    for line in lines:
        numbers = re.fullmatch(
            r"chunk: +([\d,]+): tokens ([\d,]+) \(its BOS\) to ([\d,]+) of the shard; "
            r"([\d,]+) to ([\d,]+) of the document",
            line,
        )
        chunk, bos, end, first, last = (int(n.replace(",", "")) for n in numbers.groups())
        assert chunk == bos // 32 == end // 32
        assert first == next_token and last - first == end - bos - 1
        next_token = last + 1
    assert f"{next_token:,} tokens, split train" == found["kept"]


def test_boilerplate_is_counted_and_gone(eventful_build):
    id = documents_of(eventful_build, "site 0.jsonl")[3][:32]
    found = told(eventful_build, id)
    assert found["boilerplate"] == "1 lines"
    assert re.fullmatch(r"changed: [\d,]+ characters, [\d,]+ bytes; quality 1\.00", found["clean"])
    assert eventful.BOILERPLATE not in "\n".join(explain(eventful_build, id))


@pytest.mark.parametrize(
    ("name", "secret"),
    [("mobile", eventful.MOBILE), ("mobile", eventful.EMAIL), ("secret", "123456789")],
)
def test_the_text_is_masked(eventful_build, ids, name, secret):
    words = "\n".join(explain(eventful_build, ids[name]))
    assert "private data masked" in words and secret not in words


def test_a_terminal_is_not_commanded(tmp_path):
    texts = ["\x1b[2J\x9b2J short", *(small.english(i) for i in range(30))]
    raw = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    name = "a\nkept: \x85b.jsonl"
    small.run(small.one_source(tmp_path, **{name: raw}), tmp_path)
    id = documents_of(tmp_path, name)[0][:32]
    lines = list(explain(tmp_path, id))
    assert "file:        a\u240akept: \ufffdb.jsonl, offset 0" in lines
    words = "\n".join(lines)
    assert "dropped:     by min_length" in words
    assert "\x1b" not in words and "\u241b[2J\ufffd2J short" in words


def test_undoing_it_as_told(tmp_path):
    recipe = eventful.write(tmp_path)
    small.run(recipe, tmp_path)
    names = ("short", "contaminated", "all boilerplate")
    lines = documents_of(tmp_path, "salted.jsonl")
    ids = tuple(line[:32] for name, line in zip(SALTED, lines, strict=True) if name in names)
    small.run(replace(recipe, restored=ids), tmp_path)
    for id in ids:
        found = told(tmp_path, id)
        assert found["restored"] == "by the recipe, against rules and duplicates"
        assert "kept" in found and "dropped" not in found
    assert eventful.report(tmp_path)["recipe"]["restored"] == list(ids)


def test_unknown_id(eventful_build):
    with pytest.raises(DataError, match=r"no document of the build in .* has this id"):
        explain(eventful_build, "0" * 32)


def test_an_id_in_capitals(eventful_build, ids):
    assert told(eventful_build, ids["mobile"].upper()) == told(eventful_build, ids["mobile"])


@pytest.mark.parametrize("id", ["", "xyz", "0" * 31, "G" * 32, "0" * 33])
def test_what_is_no_id(eventful_build, id):
    with pytest.raises(DataError, match="is no document id; write its 32 hex digits"):
        explain(eventful_build, id)


def test_no_build(tmp_path):
    for ask in (lambda: explain(tmp_path, "0" * 32), lambda: documents_of(tmp_path, "a")):
        with pytest.raises(
            DataError, match=r"no finished build is there \(report.json is missing\)"
        ):
            ask()


def refused(workdir, id: str) -> str:
    """What both questions are answered with."""
    with pytest.raises(DataError) as one:
        explain(workdir, id)
    with pytest.raises(DataError) as two:
        documents_of(workdir, "salted.jsonl")
    assert str(one.value) == str(two.value)
    return str(one.value)


CHANGED = "what lies there has changed since the report was written; run the same build again"


def test_a_directory_that_another_recipe_has_changed(tmp_path):
    raw = "".join(json.dumps({"text": small.english(i)}) + "\n" for i in range(30)).encode()
    recipe = small.one_source(tmp_path, salted__jsonl=raw)
    small.run(recipe, tmp_path)
    id = documents_of(tmp_path, "salted.jsonl")[0][:32]
    before = told(tmp_path, id)
    small.run(replace(recipe, rules=()), tmp_path, "clean")
    assert refused(tmp_path, id) == f"--workdir={tmp_path}: {CHANGED}"
    small.run(recipe, tmp_path)  # as it is told to
    assert told(tmp_path, id) == before


@pytest.fixture
def damaged(eventful_build, tmp_path):
    """A copy of a build, to be damaged."""
    return shutil.copytree(eventful_build, tmp_path / "copy")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"recipe": {"no": 1}, "state": ""}']
)
def test_a_damaged_report(damaged, ids, content):
    (damaged / "report.json").write_bytes(content)
    message = refused(damaged, ids["near"])
    assert message.startswith(f"{damaged / 'report.json'}: is damaged (")
    assert "; remove it and run the same build again, which makes it anew" in message


@pytest.mark.parametrize("what", ["stages", "shards", "dropped", "stages/read/web-00000"])
def test_a_directory_that_is_gone(damaged, ids, what):
    shutil.rmtree(damaged / what)
    assert refused(damaged, ids["near"]) == f"--workdir={damaged}: {CHANGED}"


def test_a_torn_table(damaged, ids):
    path = damaged / "stages/tokenize/web-00000/dropped.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert refused(damaged, ids["near"]) == f"--workdir={damaged}: {CHANGED}"


@pytest.mark.parametrize(
    ("table", "remove"),
    [
        ("stages/read/web-00000/documents.parquet", "stages/read/web-00000"),
        ("stages/privacy/web-00000/documents.parquet", "stages/privacy/web-00000"),
        ("stages/boilerplate/*/web-00000.parquet", "stages/boilerplate"),
        ("clusters.parquet", "clusters.parquet"),
    ],
)
def test_a_table_with_wrong_bytes(damaged, ids, table, remove):
    for path in damaged.glob(table):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataError) as e:
        explain(damaged, ids["mobile"])
    message = str(e.value)
    assert message.startswith(f"{damaged / remove}: is damaged (ArrowInvalid: ")
    assert message.endswith("; remove it and run the same build again, which makes it anew")


def test_a_document_table_with_wrong_bytes(damaged, ids):
    for path in damaged.glob("shards/web.*/documents.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ManifestError, match=r"shards/web\..*/documents\.parquet: cannot be read: "):
        explain(damaged, ids["mobile"])


def test_mending_damage_as_told(damaged, eventful_build, ids):
    path = damaged / "stages/privacy/web-00000/documents.parquet"
    path.write_bytes(bytes(path.stat().st_size))
    shutil.rmtree(path.parent)
    small.run(parse(Recipe, eventful.report(damaged)["recipe"]), damaged)
    assert told(damaged, ids["mobile"]) == told(eventful_build, ids["mobile"])


def test_tables_that_are_gone(damaged, ids):
    (damaged / "clusters.parquet").unlink()
    with pytest.raises(DataError, match=r"clusters\.parquet: is damaged \(FileNotFoundError: "):
        explain(damaged, ids["near"])
    assert len(documents_of(damaged, "salted.jsonl")) == len(SALTED)


def test_a_manifest_of_something_else(damaged, ids):
    other = json.loads((damaged / "manifest.json").read_text()) | {"shards": []}
    (damaged / "manifest.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match=r"which nothing dropped, is not there\); remove it"):
        explain(damaged, ids["mobile"])


def test_stray_files_are_nothing(damaged, eventful_build, ids):
    for place in ("stages", "stages/read", "stages/boilerplate", "shards", "dropped"):
        (damaged / place / ".DS_Store").write_bytes(b"\0")
    assert told(damaged, ids["near"]) == told(eventful_build, ids["near"])


def test_a_name_that_is_not_utf8(eventful_build):
    with pytest.raises(DataError, match=r"^--path='a\\udcff': is not UTF-8, as all names"):
        documents_of(eventful_build, "a\udcff")


def test_unknown_file(eventful_build):
    with pytest.raises(DataError, match=r"--path=raw/web/salted\.jsonl: no document comes from"):
        documents_of(eventful_build, "raw/web/salted.jsonl")


def test_command(eventful_build, ids, capsys):
    workdir = f"--workdir={eventful_build}"
    assert main(["explain", ids["short"], workdir]) == 0
    assert "dropped:     by min_length" in capsys.readouterr().out
    assert main(["explain", "--path=salted.jsonl", workdir]) == 0
    assert capsys.readouterr().out.startswith(f"{ids['copy']} web 0\n")
    assert main(["explain", "xyz", workdir]) == 2
    assert "'xyz' is no document id" in capsys.readouterr().err
