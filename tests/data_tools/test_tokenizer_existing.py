"""A tokenizer that exists: taken with its pieces for BOS and PAD, or refused with the reason."""

import json
from pathlib import Path

import pytest

from data_tools.engines import local
from data_tools.stage import Commit, run_stage
from data_tools.tokenizer import make
from data_tools.tokenizer.config import TokenizerConfig
from jaxlm.data.tokenizer import open_tokenizer
from jaxlm.errors import UserError
from tests.data import tokenizers
from tests.data.tokenizers import TEXTS


def take(root: Path, path: str, bos: str = "", pad: str = "") -> Commit:
    """Takes the tokenizer at `path`, relative to `root`."""
    config = TokenizerConfig(path=path, bos=bos, pad=pad)

    def run(stage, partitions):
        return run_stage(stage, partitions, root / "stages" / stage.name, local(1))

    return make.take(run, config, root)


def settings(directory: Path, **names: object) -> None:
    text = json.dumps({f"{role}_token": name for role, name in names.items()} | {"other": 1})
    (directory / "tokenizer_config.json").write_text(text)


def test_a_sentencepiece_model_is_taken_as_it_is(tmp_path):
    path = tokenizers.sentence_piece(tmp_path / "own", "unigram")
    commit = take(tmp_path, "own/tokenizer.model")
    model = open_tokenizer(path)
    assert commit.report == {
        "kind": "unigram",
        "hash": model.hash(),
        "vocab_size": 400,
        "bos_id": 1,
        "pad_id": 3,
    }
    assert list(commit.outputs) == ["tokenizer.model"]
    taken = open_tokenizer(commit.directory / "tokenizer.model")
    assert [taken.encode(t) for t in TEXTS] == [model.encode(t) for t in TEXTS]


def test_a_model_without_pad_takes_its_eos(tmp_path):
    tokenizers.dummy_prefix(tmp_path)
    report = take(tmp_path, "llama.model").report
    assert (report["bos_id"], report["pad_id"]) == (1, 2)
    report = take(tmp_path, "llama.model", bos="</s>", pad="<|im_start|>").report
    assert (report["bos_id"], report["pad_id"]) == (2, 3)


def test_a_hugging_face_directory_explains_itself(tmp_path):
    path = tokenizers.byte_level(tmp_path / "qwen")
    settings(path.parent, bos=None, eos={"content": "<|im_start|>"}, pad="<|endoftext|>")
    commit = take(tmp_path, "qwen")
    # text starts with <|endoftext|>, as such models were trained, and PAD must be another
    ids = open_tokenizer(path).controls()
    assert commit.report["bos_id"] == ids["<|endoftext|>"]
    assert commit.report["pad_id"] == ids["<|im_start|>"]
    assert commit.report["kind"] == "BPE"
    assert sorted(commit.outputs) == ["tokenizer.json", "tokenizer_config.json"]
    assert (commit.directory / "tokenizer.json").read_bytes() == path.read_bytes()
    written = json.loads((commit.directory / "tokenizer_config.json").read_text())
    assert written == {
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_start|>",
        "pad_token": "<|im_start|>",
        "other": 1,
    }
    taken = open_tokenizer(commit.directory)
    assert (taken.bos_id, taken.pad_id) == (commit.report["bos_id"], commit.report["pad_id"])
    given = open_tokenizer(path)
    assert [taken.encode(t) for t in TEXTS] == [given.encode(t) for t in TEXTS]


def test_the_file_itself_may_be_named_and_an_absolute_path_too(tmp_path):
    path = tokenizers.metaspace(tmp_path / "mistral", prefix=False)
    report = take(tmp_path, str(path), bos="<s>", pad="<unk>").report
    assert (report["bos_id"], report["pad_id"]) == (1, 0)


def test_another_file_or_another_piece_is_another_tokenizer(tmp_path):
    tokenizers.byte_level(tmp_path / "qwen")
    first = take(tmp_path, "qwen", bos="<|endoftext|>", pad="<|im_start|>")
    settings(tmp_path / "qwen", pad="<tool_call>")
    second = take(tmp_path, "qwen", bos="<|endoftext|>")
    assert first.fingerprint != second.fingerprint
    assert first.report["pad_id"] != second.report["pad_id"]


def test_pieces_that_it_does_not_have_are_refused(tmp_path):
    tokenizers.byte_level(tmp_path / "a", special=[f"<|{c}|>" for c in "abcdefghi"])
    tokenizers.byte_level(tmp_path / "b", special=["<|endoftext|>"])
    for path, bos, pad, message in (
        (
            "a",
            "",
            "",
            r"config\.tokenizer\.bos='': .* names no piece that starts a document; name ",
        ),
        ("a", "", "", r"<\|a\|>, .*<\|h\|> \.\.\. \(10 in all\)"),
        ("a", "the", "", r"bos='the': it is no control symbol in .*tokenizer\.json; name one "),
        ("b", "", "", r"config\.tokenizer\.pad='': .*; name one .* otherwise: <tool_call>$"),
        ("b", "", "<|endoftext|>", r"pad='<\|endoftext\|>': it starts documents already in "),
    ):
        with pytest.raises(UserError, match=message):
            take(tmp_path, path, bos, pad)


@pytest.mark.parametrize("role", ["bos", "pad"])
@pytest.mark.parametrize("name", ["<nope>", 5, {"content": "    "}])
def test_a_piece_that_it_names_and_does_not_have_is_not_replaced(tmp_path, role, name):
    tokenizers.byte_level(tmp_path / "qwen")
    own = {"bos": "<|endoftext|>", "pad": "<|im_start|>"}
    settings(tmp_path / "qwen", **own | {role: name})
    message = rf"tokenizer\.{role}='': .* name '.*', which is no control symbol of it; name one "
    with pytest.raises(UserError, match=message):
        take(tmp_path, "qwen")
    assert take(tmp_path, "qwen", **{role: own[role]}).report["bos_id"] == 400


def test_what_cannot_be_used_is_refused(tmp_path):
    tokenizers.word_piece(tmp_path / "bert")
    (tmp_path / "empty").mkdir()
    for path, message in (
        ("bert", "does not give text back exactly"),
        ("none.model", r"config\.tokenizer\.path='none\.model': there is no /.*none\.model; name "),
        ("empty", r"config\.tokenizer\.path='empty': .*empty has no tokenizer\.json"),
    ):
        with pytest.raises(UserError, match=message):
            take(tmp_path, path)
