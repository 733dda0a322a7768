"""The manifest: it comes back as it was written, and nothing is read that cannot be."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.small_corpus import make_corpus
from jaxlm.data import manifest as manifests
from jaxlm.data.manifest import ManifestError, Mixture, MixtureStage
from jaxlm.data.mixture import plan_manifest
from jaxlm.errors import UserError

STAGES = (MixtureStage(0.5, {"web": 1.0}), MixtureStage(1.0, {"web": 2.0}))
STRANGE = (None, True, -1, 0, 10**9, 10**30, 0.5, 1e9, -1.0, "x", "", [], {}, [1], {"x": 1})


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("manifest") / "corpus"
    proportions = Mixture(STAGES, 1e6, 0.01, {"web": 1.0})
    path = make_corpus(root, {"web": (9,)}, heldout={"web": (2,)}, mixture=proportions)
    made = replace(manifests.load(path), recipe={"mixture": {"tokens": 640.0}})
    manifests.save(made, path)
    return path


@pytest.fixture
def data(path) -> dict[str, Any]:
    """To be changed."""
    return json.loads(path.read_text(encoding="utf-8"))


def load(tmp_path: Path, data: object) -> manifests.Manifest:
    """What is read of this data."""
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    return manifests.load(tmp_path / "manifest.json")


def places(data: Any, here: tuple = ()) -> Iterator[tuple]:
    """The way to every value: keys and indices."""
    if here:
        yield here
    inside = list(enumerate(data)) if isinstance(data, list) else []
    for key, value in data.items() if isinstance(data, dict) else inside:
        yield from places(value, (*here, key))


def put(data: Any, place: tuple, value: object) -> Any:
    """A copy with another value there."""
    changed = copy.deepcopy(data)
    inside = changed
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return changed


def test_it_comes_back(path, tmp_path):
    made = manifests.load(path)
    manifests.save(made, tmp_path / "manifest.json")
    assert manifests.load(tmp_path / "manifest.json") == made
    assert (tmp_path / "manifest.json").read_bytes() == path.read_bytes()


def test_a_strange_value_anywhere_is_refused_or_does_no_harm(data, tmp_path):
    refused = 0
    for place in places(data):
        for value in STRANGE:
            try:
                plan_manifest(load(tmp_path, put(data, place, value)), None)
            except UserError:
                refused += 1
    assert refused > 600


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["dtype"], "foo", "dtype='foo': must be 'uint16' or 'uint32'; restore the manifest, or "),
        (["bos_id"], 1e9, "bos_id=1000000000.0: must be an integer from 0 on"),
        (["bos_id"], None, "bos_id=None: must be an integer from 0 on"),
        (["pad_id"], 320, "pad_id=320: must be below vocab_size=320"),
        (["vocab_size"], 70_000, "vocab_size=70000: uint16 has 65536 ids"),
        (["chunk_tokens"], 0, "chunk_tokens=0: must be at least 1"),
        (["tokenizer"], 7, "tokenizer=7: must be a str"),
        (["shards"], {}, "shards={}: must be a list"),
        (["shards", 0], 7, "shards[0]=7: must be an object"),
        (["shards", 1, "split"], "test", "shards[1].split='test': must be 'train' or 'heldout'"),
        (["shards", 0, "chunks"], -1, "shards[0].chunks=-1: must be an integer from 0 on"),
        (["shards", 0, "chunk"], 1, "shards[0].chunk is no field of a manifest"),
        (["mixture", "tolerance"], float("nan"), "mixture.tolerance=nan: must be a number from 0"),
        (["mixture", "source_weights"], {}, "mixture.source_weights has no weight for web"),
        (
            ["mixture", "source_weights", "web"],
            "x",
            "mixture.source_weights['web']='x': must be a ",
        ),
        (["mixture", "stages", 0, "until"], "x", "mixture.stages[0].until='x': must be a number"),
        (["mixture", "stages", 0, "until"], 1.0, "mixture.stages end until=[1.0, 1.0]: must be sh"),
        (["mixture", "stages", 1, "until"], 0.9, "increasing up to 1"),
    ],
)
def test_what_cannot_be_is_named(data, tmp_path, place, value, message):
    with pytest.raises(ManifestError) as e:
        load(tmp_path, put(data, place, value))
    assert str(e.value).startswith(f"{tmp_path / 'manifest.json'}: ")
    assert message in str(e.value)
    assert str(e.value).endswith("; restore the manifest, or build the corpus again")


@pytest.mark.parametrize("place", [("shards",), ("shards", 0, "table_bytes"), ("mixture",)])
def test_what_is_missing_is_named(data, tmp_path, place):
    inside = data
    for key in place[:-1]:
        inside = inside[key]
    del inside[place[-1]]
    with pytest.raises(ManifestError, match=rf": .*{place[-1]} is missing; restore the manifest"):
        load(tmp_path, data)


def test_a_recipe_without_what_is_looked_up_is_refused(data, tmp_path):
    for recipe in ({}, {"mixture": 1}, {"mixture": {"tokens": "many"}}):
        found = load(tmp_path, data | {"recipe": recipe})
        with pytest.raises(
            ManifestError, match=r"^recipe\.mixture\.tokens=.*: must be a number fr"
        ):
            plan_manifest(found, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a manifest, JSON breaks at line 1"),
        ("[]", "not a manifest, but a JSON list"),
        ("{}", "version None, this code reads 2; build it again"),
        ('{"version": ' + "1" * 5000 + "}", "cannot be read as a manifest: Exceeds the limit"),
    ],
)
def test_what_is_no_manifest(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ManifestError, match=rf"x\.json: {message}"):
        manifests.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    "path", ["../other/x", "a/../../x", "/etc/passwd", "s3://bucket/x", "a//b", "./a", "", "a\\b"]
)
@pytest.mark.parametrize("field", ["tokenizer", "shard"])
def test_a_path_that_may_leave_the_corpus_is_refused(tmp_path, path, field):
    whole = manifests.load(make_corpus(tmp_path / "corpus", {"web": [3]}))
    if field == "tokenizer":
        edited = replace(whole, tokenizer=path)
    else:
        edited = replace(whole, shards=(replace(whole.shards[0], path=path),))
    manifests.save(edited, tmp_path / "manifest.json")
    with pytest.raises(ManifestError, match="is not a path below the manifest's directory"):
        manifests.load(tmp_path / "manifest.json")
