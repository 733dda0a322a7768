"""`tokenizer evaluate` on real builds: figures, checks, tables, and the tokenizers beside them."""

import json
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_tools.document import DataError
from data_tools.heldout import HeldoutConfig
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.evaluate import OWN, evaluate
from data_tools.tokenizer.peers import PEERS
from jaxlm.data import manifest as manifests
from jaxlm.data.manifest import ManifestError
from jaxlm.errors import EnvironmentProblem
from tests.data_tools import small

UNTRAINED = "has no text that the corpus's tokenizer was trained on; take the work directory of a"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Work directory of a finished build; only to be read."""
    workdir = tmp_path_factory.mktemp("corpus")
    small.write_raw(workdir)
    small.run(small.recipe(), workdir)
    return workdir


def evaluated(corpus: Path, tmp_path: Path, *given: Path, peers: bool = False) -> dict:
    """tokenizer_evaluation.json of a copy of the corpus."""
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    assert evaluate(workdir, given, peers, 1 << 20) == 0
    return json.loads((workdir / "tokenizer_evaluation.json").read_text(encoding="utf-8"))


def agrees(data: dict, manifest: manifests.Manifest) -> None:
    """Rows hold the documents of the shards, and encoding them again gives the same ids."""
    held = {s.type: s for s in manifest.shards if s.split == "heldout"}
    for name, row in data["rows"].items():
        shard, own = held[row["type"]], data["tokenizers"][OWN]["rows"][name]
        assert (row["documents"], row["bytes"]) == (shard.documents, shard.text_bytes)
        assert (own["tokens"], own["failed"]) == (shard.tokens, 0)


def test_the_held_out_text_is_that_of_the_shards(corpus, tmp_path, capsys):
    data = evaluated(corpus, tmp_path)
    assert list(data["rows"]) == ["book zh", "code", "web en"] and data["missing"] == []
    agrees(data, manifests.load(corpus / "manifest.json"))
    assert data["checks"] == {"chinese_coverage": 1.0, "least_coverage": 0.995, "faults": []}
    # 12 calls and a return in each document of `small.code`
    found = data["tokenizers"][OWN]["fertility"]
    assert found["line start"]["units"] == data["rows"]["code"]["documents"] * 13
    assert "| book zh |" in capsys.readouterr().out


def test_documents_in_several_pieces_are_put_together(tmp_path):
    small.write_raw(tmp_path, files=2)
    recipe = replace(small.recipe(), heldout=HeldoutConfig(0.2, types=(("web", 0.0),)))
    pack = replace(recipe.pack, method="best_fit")
    small.run(replace(recipe, pack=pack), tmp_path)
    assert evaluate(tmp_path, [], False, 0) == 0
    data = json.loads((tmp_path / "tokenizer_evaluation.json").read_text(encoding="utf-8"))
    agrees(data, manifests.load(tmp_path / "manifest.json"))
    assert data["missing"] == ["web"]
    written = (tmp_path / "tokenizer_evaluation.md").read_text(encoding="utf-8")
    assert "No text is held out of these types: web." in written


def test_the_tables_say_what_the_data_says(corpus, tmp_path):
    data = evaluated(corpus, tmp_path)
    written = (tmp_path / "copy/tokenizer_evaluation.md").read_text(encoding="utf-8")
    page = (tmp_path / "copy/tokenizer_evaluation.html").read_text(encoding="utf-8")
    figure = f"{data['tokenizers'][OWN]['rows']['code']['characters_per_token']:.2f}"
    assert f"| code | {figure} |" in written
    assert f'<td class="text">code</td><td class="figure">{figure}</td>' in page
    assert "Coverage of Chinese text: 100.000%, at least 99.5% wanted." in written
    assert "http" not in page.replace("http-equiv", "")  # asks nothing of a network


def test_a_given_tokenizer_is_measured_or_refused_with_the_reason(corpus, tmp_path):
    lossy = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    lossy.save(str(tmp_path / "tokenizer.json"))
    model = Path(shutil.copy(corpus / "tokenizer.model", tmp_path / "other.model"))
    (tmp_path / "empty").mkdir()
    data = evaluated(corpus, tmp_path, model, tmp_path / "tokenizer.json", tmp_path / "empty")
    own, other = (data["tokenizers"][name] for name in (OWN, str(model)))
    assert other["rows"] == own["rows"] and other["fertility"] == own["fertility"]
    assert "has no tokenizer.json" in data["refused"][str(tmp_path / "empty")]
    assert "does not give text back exactly" in data["refused"][str(tmp_path / "tokenizer.json")]
    written = (tmp_path / "copy/tokenizer_evaluation.md").read_text(encoding="utf-8")
    assert f"| {tmp_path / 'empty'} | - | - | - | refused: " in written


def test_a_byte_level_tokenizer_covers_what_it_has_pieces_for(corpus, tmp_path):
    given = Tokenizer(models.BPE())
    given.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    given.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        special_tokens=["<bos>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    given.train_from_iterator(["the model reads a token "] * 9, trainer)
    given.save(str(tmp_path / "tokenizer.json"))
    data = evaluated(corpus, tmp_path, tmp_path / "tokenizer.json")
    rows = data["tokenizers"][str(tmp_path / "tokenizer.json")]["rows"]
    assert rows["web en"]["covered"] == rows["web en"]["spanned"]
    # of the Chinese the newlines: every other character is three bytes
    assert rows["book zh"]["covered"] == data["rows"]["book zh"]["documents"]


def test_peers_are_trained_on_the_same_text(corpus, tmp_path):
    data = evaluated(corpus, tmp_path, peers=True)
    documents = sum(row["documents"] for row in data["rows"].values())
    failed = {
        name: sum(row["failed"] for row in data["tokenizers"][name]["rows"].values())
        for name in PEERS
    }
    # WordPiece loses the newline at the end of each
    assert failed == {"BPE": 0, "unigram": 0, "WordPiece": documents, "byte-level BPE": 0}
    for name in PEERS:
        assert data["tokenizers"][name]["vocab_size"] <= 400
        assert data["notes"][name].startswith("trained on 0.0 MB in ")
    rows = data["tokenizers"]["BPE"]["rows"]
    assert rows["book zh"]["covered"] == rows["book zh"]["spanned"]


def test_low_coverage_of_chinese_fails(tmp_path, capsys):
    small.write_raw(tmp_path)
    recipe = small.recipe()
    tokenizer = replace(recipe.tokenizer, character_coverage=0.98)
    small.run(replace(recipe, tokenizer=tokenizer), tmp_path)
    assert evaluate(tmp_path, [], False, 0) == 2
    told = capsys.readouterr().err
    assert re.search(
        r"Chinese text is [89]\d\.\d+%, below 99\.5%: raise .*character_coverage", told
    )
    page = (tmp_path / "tokenizer_evaluation.html").read_text(encoding="utf-8")
    assert "FAILED: coverage" in page


def test_a_corpus_without_held_out_text_is_refused(corpus, tmp_path):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    manifest = manifests.load(workdir / "manifest.json")
    shards = tuple(s for s in manifest.shards if s.split == "train")
    manifests.save(replace(manifest, shards=shards), workdir / "manifest.json")
    with pytest.raises(DataError, match=r"no document is held out .*fraction=0\.1"):
        evaluate(workdir, [], False, 0)


def test_a_tokenizer_that_is_not_the_shards_is_refused(corpus, tmp_path):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    path = workdir / "manifest.json"
    manifests.save(replace(manifests.load(path), tokenizer_hash="0" * 16), path)
    with pytest.raises(DataError, match=r"the shards were made with 0000000000000000"):
        evaluate(workdir, [], False, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("documents.parquet", r"documents\.parquet: cannot be read: .*; restore it, or remove "),
        ("chunks.array_record", r"chunks\.array_record: is damaged: .*; restore it, or remove "),
    ],
)
def test_damaged_held_out_text_is_named(corpus, tmp_path, name, message):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    found = list(workdir.glob(f"shards/*heldout*/{name}"))
    for path in found:
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ManifestError, match=message):
        evaluate(workdir, [], False, 1)
    for path in found:
        path.unlink()
    with pytest.raises(ManifestError, match=f"{name}: .*is missing"):
        evaluate(workdir, [], False, 1)


def test_peers_need_the_text_of_the_build(corpus, tmp_path):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    shutil.rmtree(workdir / "stages")
    with pytest.raises(DataError, match=UNTRAINED):
        evaluate(workdir, [], True, 1 << 20)


def test_peers_need_the_text_of_the_tokenizer_that_the_corpus_has(corpus, tmp_path):
    """What an earlier or a later build left in the stages is not it."""
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    base = small.recipe()
    other = replace(base.tokenizer, vocab_size=380)
    small.run(replace(base, tokenizer=other), workdir, "tokenizer")
    with pytest.raises(DataError, match=UNTRAINED):
        evaluate(workdir, [], True, 1 << 20)
    shutil.copy(corpus / "tokenizer.model", workdir / "own.model")
    small.run(replace(base, tokenizer=TokenizerConfig(path="own.model")), workdir)
    assert list(workdir.glob("stages/tokenizer_sample/*"))
    with pytest.raises(DataError, match=UNTRAINED):
        evaluate(workdir, [], True, 1 << 20)


def test_peers_need_a_piece_of_text(corpus, tmp_path):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    with pytest.raises(DataError, match="--sample-bytes=1: chooses no piece of text; ask for more"):
        evaluate(workdir, [], True, 1)


def test_a_tokenizer_that_is_not_there_is_wrong_usage(corpus, tmp_path):
    typo = tmp_path / "typo.model"
    with pytest.raises(DataError, match=r"--tokenizer=.*typo\.model: no such file or directory;"):
        evaluate(corpus, [corpus / "tokenizer.model", typo], False, 1)


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_measured(corpus, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="cannot be written"):
            evaluate(corpus, [], False, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err == ""


def test_a_tokenizer_in_the_work_directory_is_not_overwritten(corpus, tmp_path):
    workdir = Path(shutil.copytree(corpus, tmp_path / "copy"))
    names = {"tokenizer.json", "tokenizer.md", "tokenizer.html"}
    for name in names:
        (workdir / name).write_text("mine")
    before = {p.name for p in workdir.iterdir()}
    assert evaluate(workdir, [], False, 1) == 0
    assert {(workdir / name).read_text() for name in names} == {"mine"}
    made = {f"tokenizer_evaluation.{suffix}" for suffix in ("json", "md", "html")}
    assert {p.name for p in workdir.iterdir()} - before == made
