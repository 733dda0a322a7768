"""`verify` finds each kind of damage, and says which file it is in."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from data_tools.corpus import source_weights
from data_tools.document import Document, table_writer
from data_tools.heldout import HeldoutConfig
from data_tools.mixture import in_manifest
from data_tools.pack.config import PackConfig
from data_tools.pack.partition import CHUNKS
from data_tools.pack.shards import write_shard
from data_tools.pack.verify import verify
from data_tools.recipe import Recipe
from data_tools.source import SourceConfig
from data_tools.stage import Commit, Input, Output, Partition
from data_tools.tokenize import TOKENS, tokenize_partition
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.train import train_model
from jaxlm.data import manifest
from jaxlm.data.documents import TABLE
from jaxlm.data.manifest import Manifest, ManifestError, Packing, Shard, sha256
from jaxlm.data.tokenizer import open_tokenizer
from jaxlm.schema import to_dict
from tests.data import tokenizers
from tests.data_tools import small
from tests.data_tools.pack.material import BOS, PAD, build_from

TEXTS = [f(i) for i in range(60) for f in (small.chinese, small.english, small.code)]
REMEDY = "remove the directories of these files and run the same build again"


def write_model(path: Path, vocab_size: int) -> None:
    config = TokenizerConfig(vocab_size=vocab_size, control_symbols=(), reserved=0)
    path.write_bytes(train_model(config, iter(TEXTS)))


def tokenize(root: Path) -> Commit:
    """The texts as the partition s-00000 of the stage `tokenize`."""
    tokenizer = open_tokenizer(root / "tokenizer.model")
    assert (tokenizer.bos_id, tokenizer.pad_id) == (BOS, PAD)
    with table_writer(root / "documents") as write:
        for i, text in enumerate(TEXTS):
            write(Document.make(text, "s", "web", "f", i, {}))
    inputs = {
        "documents": (Input(root / "documents", "s-00000", ""),),
        "verdicts": (),
        "representatives": (),
        "tokenizer": (Input(root / "tokenizer.model", "tokenizer", tokenizer.hash()),),
    }
    out = root / "tokens"
    out.mkdir()
    tokenize_partition(Partition("s-00000", (), inputs), out)
    output = {TOKENS: Output((out / TOKENS).stat().st_size, sha256(out / TOKENS))}
    return Commit("s-00000", "", out, output, {}, 0)


def write_corpus(root: Path, method: Packing) -> Manifest:
    """A tokenizer, shards of the texts, and their manifest."""
    write_model(root / "tokenizer.model", 400)
    pack = PackConfig(method, 32, shard_bytes=8000)
    source = SourceConfig("s", "web", "jsonl", "raw", ("*.jsonl",))
    recipe = Recipe(sources=(source,), pack=pack, heldout=HeldoutConfig(0.1))
    built = build_from(root, [tokenize(root)], pack, heldout=0.1, vocab_size=400)
    tokenizer = open_tokenizer(root / "tokenizer.model")
    made = Manifest(
        version=manifest.VERSION,
        tokenizer="tokenizer.model",
        tokenizer_hash=tokenizer.hash(),
        vocab_size=400,
        bos_id=BOS,
        pad_id=PAD,
        dtype="uint16",
        chunk_tokens=32,
        packing=method,
        mixture=in_manifest(recipe.mixture, source_weights(recipe)),
        shards=tuple(_shard(c) for c in built.shards.values()),
        recipe=to_dict(recipe),
        counts={},
    )
    manifest.save(made, root / "manifest.json")
    count(root)
    return made


def _shard(commit: Commit) -> Shard:
    report, outputs = commit.report, commit.outputs
    same = ("source", "type", "split", "chunks", "tokens", "text_bytes", "documents")
    return Shard(
        path=f"shards/{commit.partition}/{CHUNKS}",
        **{name: report[name] for name in same},
        file_bytes=outputs[CHUNKS].bytes,
        sha256=outputs[CHUNKS].sha256,
        table_bytes=outputs[TABLE].bytes,
        table_sha256=outputs[TABLE].sha256,
    )


@pytest.fixture(scope="module", params=["concat", "best_fit"])
def corpus(request, tmp_path_factory) -> Path:
    """Only to be read."""
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root, request.param)
    return root


@pytest.fixture
def copy(corpus, tmp_path) -> Path:
    shutil.copytree(corpus, tmp_path / "copy")
    return tmp_path / "copy"


def shard_paths(root: Path) -> list[Path]:
    return [root / s.path for s in manifest.load(root / "manifest.json").shards]


def damage(root: Path) -> str:
    """What `verify` refuses a corpus with, having told it of every shard."""
    lines = []
    with pytest.raises(ManifestError) as refused:
        for line in verify(root):
            lines.append(line)
    assert len(lines) in (0, len(shard_paths(root)))
    return str(refused.value)


def test_a_whole_corpus_agrees(corpus):
    *lines, last = verify(corpus)
    assert len(lines) == len(shard_paths(corpus)) >= 4
    assert all(line.endswith("documents agree") for line in lines)
    assert last == f"{len(lines)} shards agree with {corpus / 'manifest.json'}"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "flip": (flip, "differs from its sha256"),
    "truncate": (truncate, "bytes, the manifest says"),
    "remove": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize("name", [CHUNKS, TABLE])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_named_with_the_remedy(copy, name, kind):
    harm, message = DAMAGES[kind]
    shards = shard_paths(copy)
    harm(shards[1].with_name(name))
    found = damage(copy)
    assert f"1 of {len(shards)} shards are damaged; {REMEDY}" in found
    last = found.splitlines()[-1]
    assert last.startswith(f"{shards[1].with_name(name)}: ") and message in last


def test_every_damaged_shard_is_told(copy):
    shards = shard_paths(copy)
    flip(shards[0])
    truncate(shards[2].with_name(TABLE))
    found = damage(copy)
    assert f"2 of {len(shards)} shards" in found
    assert str(shards[0]) in found and str(shards[2].with_name(TABLE)) in found


def test_another_tokenizer_is_refused(copy):
    write_model(copy / "tokenizer.model", 390)
    assert "a tokenizer of hash" in damage(copy) and "run the same build again" in damage(copy)
    (copy / "tokenizer.model").write_bytes(b"no model")
    assert "tokenizer.model" in damage(copy) and "run the same build again" in damage(copy)


# ---- a manifest that agrees with what is wrong ---------------------------------------------------


def accept(root: Path) -> None:
    """Writes sizes and hashes of the files as they are into the manifest."""
    made = manifest.load(root / "manifest.json")
    shards = []
    for shard in made.shards:
        records = root / shard.path
        table = records.with_name(TABLE)
        shards.append(
            dataclasses.replace(
                shard,
                file_bytes=records.stat().st_size,
                sha256=sha256(records),
                table_bytes=table.stat().st_size,
                table_sha256=sha256(table),
            )
        )
    manifest.save(dataclasses.replace(made, shards=tuple(shards)), root / "manifest.json")


def edit_manifest(root: Path, edit: Callable[[dict], object]) -> None:
    data = json.loads((root / "manifest.json").read_text())
    edit(data)
    (root / "manifest.json").write_text(json.dumps(data))


def count(root: Path) -> None:
    """Makes the counts those of the listed shards."""

    def counted(data: dict) -> None:
        data["counts"]["s"] = {}
        for split in ("train", "heldout"):
            here = [shard for shard in data["shards"] if shard["split"] == split]
            keys = ("documents", "chunks", "tokens")
            sums = {key: sum(shard[key] for shard in here) for key in keys}
            data["counts"]["s"][split] = {"shards": len(here)} | sums

    edit_manifest(root, counted)


def test_swapped_tables_are_found(copy):
    one, two = (p.with_name(TABLE) for p in shard_paths(copy)[:2])
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    assert "differs from its sha256" in damage(copy) or "the manifest says" in damage(copy)
    accept(copy)
    assert f"{one}: is of the shard ['{two.parent.name}'], the manifest says" in damage(copy)


def rewrite(path: Path, change: Callable[[np.ndarray], None]) -> None:
    """Changes the records of a shard, int64[chunks, chunk_tokens + 1]; they need not join."""
    records = np.stack([np.frombuffer(r, "<u2") for r in ArrayRecordReader(str(path)).read_all()])
    records = records.copy()
    change(records)
    write_shard(path, list(records), records.shape[1] - 1)


def _beyond(records: np.ndarray) -> None:
    records[3, 5] = 400


def _torn(records: np.ndarray) -> None:
    records[3, 0] = 399


def _no_bos(records: np.ndarray) -> None:
    records[0, 0] = 399


def _other_text(records: np.ndarray) -> None:
    records[0, 1:-1][records[0, 1:-1] >= 260] = 4 + ord("x")  # behind the bytes: whole words


def _inner_padding(records: np.ndarray) -> None:
    text = np.flatnonzero((records[0, 1:-1] > PAD) & (records[0, 2:] > PAD))[0] + 1
    records[0, text] = PAD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_beyond, "id 400 from record 0 on, the vocabulary has 400"),
        (_torn, "record 3 does not start as the last one ended"),
        (_no_bos, "documents do not start where the records have a BOS"),
        (_other_text, "bytes of text, the manifest says"),
        (_inner_padding, "text follows padding"),
    ],
)
def test_wrong_records_are_found(copy, change, message):
    rewrite(shard_paths(copy)[0], change)
    accept(copy)
    assert message in damage(copy)


def test_a_record_of_another_length_is_found(copy):
    path = shard_paths(copy)[0]
    made = manifest.load(copy / "manifest.json")
    ids = np.zeros(made.shards[0].chunks * 31 + 1, "<u2")
    write_shard(path, [ids], 31)
    accept(copy)
    assert f"{path}: record 0 is not of 66 bytes" in damage(copy)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("start", "documents do not start where the records have a BOS"),
        ("tokens", "documents are not as long as in the records"),
        ("skip", "the pieces of a document do not follow each other"),
    ],
)
def test_a_wrong_table_is_found(copy, column, message):
    path = shard_paths(copy)[0].with_name(TABLE)
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[-1] += 1
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array(values)), path)
    accept(copy)
    assert f"{path}: {message}" in damage(copy)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("chunks", "records, the manifest says 1"),
        ("tokens", "tokens, the manifest says 1"),
        ("documents", "documents, the manifest says 1"),
        ("text_bytes", "bytes of text, the manifest says 1"),
    ],
)
def test_a_manifest_that_counts_wrong_is_found(copy, field, message):
    edit_manifest(copy, lambda data: data["shards"][0].update({field: 1}))
    count(copy)
    assert message in damage(copy)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("split", "train", "is of the split ['heldout'], the manifest says 'train'"),
        ("type", "book", "is of the type ['web'], the manifest says 'book'"),
        ("source", "s.q1", "the manifest says 's.q1', another bucket of its source"),
    ],
)
def test_a_shard_under_another_name_is_found(copy, field, value, message):
    def rename(data: dict) -> None:
        del data["shards"][:-1]
        data["shards"][0][field] = value

    edit_manifest(copy, rename)
    count(copy)
    assert message in damage(copy)


def swapped(data: dict) -> None:
    for shard in data["shards"]:
        shard["split"] = {"train": "heldout", "heldout": "train"}[shard["split"]]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (swapped, "lists of source s (train) {'shards': 1,"),
        (lambda data: data["shards"].pop(0), "lists of source s (train) {'shards': "),
        (
            lambda data: data["shards"].clear(),
            "lists of source s (train) {'shards': 0, 'documents'",
        ),
        (lambda data: data["shards"].append(data["shards"][0]), "lists shards of s (train) twice"),
        (lambda data: data["shards"].reverse(), "lists shards of s (train) twice or out of order"),
        (lambda data: data["counts"].clear(), "its counts say {}"),
        (lambda data: data["mixture"].update(source_weights={"s": 2.0}), "packing or mixture are"),
        (lambda data: data["mixture"].update(tolerance=0.5), "packing or mixture are not those"),
        (
            lambda data: data["recipe"]["sources"].clear(),
            "its recipe is damaged, or of another version of jaxlm: config.sources=()",
        ),
        (lambda data: data["recipe"]["pack"].update(salt="x"), "keys are not those of config.pack"),
    ],
)
def test_a_manifest_that_lists_other_things_is_found(copy, edit, message):
    edit_manifest(copy, edit)
    assert message in damage(copy)


def test_other_pieces_for_bos_and_pad_are_found(copy):
    path = tokenizers.byte_level(copy / "tokenizer")
    settings = path.with_name("tokenizer_config.json")
    pieces = {"bos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}
    settings.write_text(json.dumps(pieces))
    tokenizer = open_tokenizer(path.parent)
    ids = {"bos_id": tokenizer.bos_id, "pad_id": tokenizer.pad_id}
    own = {"tokenizer": "tokenizer", "tokenizer_hash": tokenizer.hash()} | ids
    edit_manifest(copy, lambda data: data.update(own | {"vocab_size": tokenizer.vocab_size}))
    told = "BOS {bos_id} and PAD {pad_id}, the shards were made with"
    assert told.format(**ids) not in damage(copy)
    settings.write_text(json.dumps({"bos_token": "<|im_start|>", "pad_token": "<|endoftext|>"}))
    assert told.format(bos_id=ids["pad_id"], pad_id=ids["bos_id"]) in damage(copy)
    settings.unlink()
    assert "BOS -1 and PAD -1, the shards were made with" in damage(copy)
