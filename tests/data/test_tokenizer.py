"""Tokenizers of both libraries: lossless, safe from markers in text, spelled, known by a hash."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2

from jaxlm.data.abstract_tokenizer import PROBE, is_marker
from jaxlm.data.tokenizer import Spelling, Tokenizer, TokenizerError, open_tokenizer
from tests.data import tokenizers
from tests.data.tokenizers import TEXTS

MODELS: dict[str, Callable[[Path], Path]] = {
    "bpe": lambda d: tokenizers.sentence_piece(d, "bpe"),
    "unigram": lambda d: tokenizers.sentence_piece(d, "unigram"),
    "dummy_prefix": tokenizers.dummy_prefix,
    "byte_level": tokenizers.byte_level,
    "metaspace": lambda d: tokenizers.metaspace(d, prefix=False),
    "metaspace_prefix": lambda d: tokenizers.metaspace(d, prefix=True),
}
SPELLED = ("bpe", "unigram", "byte_level", "metaspace")
STRANGE = ["\t\tx\r\n\r\n  ", "𠮷🙂未见过", "  ", "ＡＢＣ，。", "a\x00b", "", "    a", PROBE]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tokenizers")
    return {name: make(root / name) for name, make in MODELS.items()}


@pytest.fixture(params=MODELS)
def tokenizer(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Tokenizer:
    return open_tokenizer(paths[request.param])


def test_lossless(tokenizer):
    texts = [*STRANGE, *TEXTS]
    encoded = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    assert encoded == [tokenizer.encode(t) for t in texts]
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    assert max(max(ids, default=0) for ids in encoded) < tokenizer.vocab_size


def test_no_control_symbol_comes_from_text(tokenizer):
    controls = tokenizer.controls()
    assert controls
    for name in controls:
        for text in (name, f" {name}\n", f"a{name}b", name * 2, f"<{name}>"):
            ids = tokenizer.encode(text)
            assert not set(ids) & set(controls.values())
            assert tokenizer.decode(ids) == text
        assert tokenizer.decode([controls[name]]) == ""


def test_text_that_is_not_unicode_is_refused(tokenizer):
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch(["ab", text])):
        with pytest.raises(TokenizerError, match="cannot be written as UTF-8"):
            encode("a\udcff")


# ---- control symbols -----------------------------------------------------------------------------


def test_a_trained_model_has_its_control_symbols(paths):
    controls = open_tokenizer(paths["unigram"]).controls()
    named = ["<bos>", "<eos>", "<pad>", "<user>", "<reserved_0>", "<reserved_1>"]
    assert controls == {name: i + 1 for i, name in enumerate(named)}


def test_markers_are_control_symbols_and_other_added_pieces_are_text(paths):
    found = open_tokenizer(paths["byte_level"])
    assert list(found.controls()) == ["<|endoftext|>", "<|im_start|>", "<tool_call>"]
    assert found.decode([found.encode("    x")[0]]) == "    "
    found = open_tokenizer(paths["dummy_prefix"])
    assert list(found.controls()) == ["<s>", "</s>", "<|im_start|>"]
    assert len(found.encode("a\r\nb")) < len(found.encode("a\n\rb"))


@pytest.mark.parametrize(
    ("piece", "marker"),
    [("<|im_end|>", True), ("[INST]", True), ("    ", False), ("\n\n", False), ("user_id", False)],
)
def test_is_marker(piece, marker):
    assert is_marker(piece) == marker


def test_nothing_is_put_before_a_text_and_nothing_is_cut(paths):
    found = open_tokenizer(paths["byte_level"])  # its file says BOS, 5 tokens and padding
    short, long = found.encode_batch(["x", "x y z " * 20])
    assert len(short) == 1 and len(long) > 40


def test_roles(paths, tmp_path):
    found = open_tokenizer(paths["bpe"])
    assert (found.bos_id, found.eos_id, found.pad_id) == (1, 2, 3)
    found = open_tokenizer(paths["byte_level"])
    assert (found.bos_id, found.eos_id, found.pad_id) == (-1, -1, -1)
    path = tokenizers.byte_level(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "x", "eos_token": "x"}')
    settings = {"eos_token": {"content": "<|endoftext|>"}, "pad_token": "<|im_start|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"bos_token": None}))
    found = open_tokenizer(tmp_path)
    ids = found.controls()
    assert found.path == path and found.bos_id == -1
    assert (found.eos_id, found.pad_id) == (ids["<|endoftext|>"], ids["<|im_start|>"])


# ---- spelling ------------------------------------------------------------------------------------


def spell(spelling: Spelling, ids: list[int]) -> bytes:
    bounds = zip(spelling.starts[ids], spelling.starts[[i + 1 for i in ids]], strict=True)
    return b"".join(spelling.data[a:b].tobytes() for a, b in bounds)


@pytest.mark.parametrize("name", SPELLED)
def test_decoding_is_the_joined_spelling(paths, name):
    tokenizer = open_tokenizer(paths[name])
    spelling, sizes_V = tokenizer.spelling(), tokenizer.piece_bytes_V()
    assert spelling is not None
    for text in (t for t in (*STRANGE, *TEXTS) if t):
        ids = tokenizer.encode(text)
        assert spell(spelling, ids) == text.encode()
        assert sizes_V[ids].sum() == len(text.encode())
    rng, checked = random.Random(0), 0
    everything = list(range(tokenizer.vocab_size))
    for _ in range(4_000):
        ids = rng.choices(everything, k=rng.randrange(1, 5))
        found = spell(spelling, ids)
        try:
            text = found.decode()
        except UnicodeDecodeError:
            continue
        assert tokenizer.decode(ids) == text, ids
        checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", [n for n in MODELS if n not in SPELLED])
def test_a_decoder_that_does_more_is_not_spelled(paths, name):
    tokenizer = open_tokenizer(paths[name])
    assert tokenizer.spelling() is None
    sizes_V = tokenizer.piece_bytes_V()
    assert sizes_V.shape == (tokenizer.vocab_size,) and sizes_V.max() > 3
    assert all(sizes_V[i] == 0 for i in tokenizer.controls().values() if i)


# ---- identity ------------------------------------------------------------------------------------


def test_the_hash_of_a_model_file_is_over_what_it_does(paths, tmp_path):
    model = sentencepiece_model_pb2.ModelProto.FromString(  # pyright: ignore
        paths["bpe"].read_bytes()
    )

    def hash() -> str:
        (tmp_path / "tokenizer.model").write_bytes(model.SerializeToString())
        return open_tokenizer(tmp_path / "tokenizer.model").hash()

    expected = open_tokenizer(paths["bpe"]).hash()
    model.trainer_spec.num_threads += 1
    assert hash() == expected
    model.pieces[300].score -= 0.5
    assert hash() != expected
    model.pieces[300].score += 0.5
    assert hash() == expected
    model.normalizer_spec.add_dummy_prefix = True
    assert hash() != expected


def test_the_hash_of_a_tokenizer_json_is_over_what_it_does(paths, tmp_path):
    def hash(data: object) -> str:
        (tmp_path / "tokenizer.json").write_text(json.dumps(data, indent=3))
        return open_tokenizer(tmp_path).hash()

    expected = open_tokenizer(paths["byte_level"]).hash()
    data = json.loads(paths["byte_level"].read_text())
    model = data["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    assert hash(data | {"post_processor": None, "truncation": None, "padding": None}) == expected
    for written in (merges, [" ".join(m) for m in merges]):
        assert hash(data | {"model": model | {"merges": written}}) == expected
    swapped = [*merges[:-2], merges[-1], merges[-2]]
    assert hash(data | {"model": model | {"merges": swapped}}) != expected
    assert hash(data | {"normalizer": None}) != expected
    assert hash(data | {"added_tokens": data["added_tokens"][:-1]}) != expected


# ---- refused -------------------------------------------------------------------------------------


def test_a_missing_tokenizer_names_the_command(tmp_path):
    with pytest.raises(TokenizerError, match=r"x\.model: .*python -m data_tools tokenizer train"):
        open_tokenizer(tmp_path / "x.model")
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json; name a directory with one"):
        open_tokenizer(tmp_path)


def test_without_the_library_the_extra_is_named(paths, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r"json: .* needs: pip install 'jaxlm\[hf\]'"):
        open_tokenizer(paths["byte_level"])
    assert open_tokenizer(paths["bpe"])


def test_a_tokenizer_that_loses_text_is_refused(tmp_path):
    path = tokenizers.word_piece(tmp_path)
    with pytest.raises(TokenizerError, match=r"does not give text back exactly.*byte-level"):
        open_tokenizer(path)


def test_a_model_that_writes_its_markers_from_text_is_refused(paths, tmp_path):
    data = json.loads(paths["metaspace"].read_text())
    data["model"] |= {"ignore_merges": True}  # looks whole words up before it merges
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(TokenizerError, match="a text that holds '<unk>' becomes that control symb"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("not JSON", "not a tokenizer.json of Hugging Face"),
        ('{"version": "1.0"}', "not a tokenizer.json of Hugging Face: KeyError"),
        ({"model": {"type": "Other"}}, "not a tokenizer.json of Hugging Face: "),
        ({"dropout": 0.1}, "dropout=0.1 gives other ids each time; set it to null"),
        ({"added": 9}, "'<too far>' has the id 409, which does not follow on the vocabulary"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(paths, tmp_path, change, message):
    data = json.loads(paths["byte_level"].read_text())
    match change:
        case str():
            text = change
        case {"model": model}:
            text = json.dumps(data | {"model": model})
        case {"dropout": share}:
            text = json.dumps(data | {"model": data["model"] | {"dropout": share}})
        case {"added": _}:
            far = data["added_tokens"][-1] | {"id": 409, "content": "<too far>"}
            text = json.dumps(data | {"added_tokens": [*data["added_tokens"], far]})
        case _:
            raise AssertionError(change)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match=message):
        open_tokenizer(tmp_path)


def test_a_piece_that_is_not_utf8_is_refused(paths, tmp_path):
    whole = paths["bpe"].read_bytes()
    for text, flipped in ((b"learns", b"l\xe5arns"), (b"identity", b"identit\xf9")):
        assert text in whole
        (tmp_path / "x.model").write_bytes(whole.replace(text, flipped))
        with pytest.raises(TokenizerError, match=r"x\.model: is damaged: b'.*is not UTF-8; resto"):
            open_tokenizer(tmp_path / "x.model")


@pytest.mark.parametrize("content", [b"", b"something else", b"\x0a\x02ab"])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    (tmp_path / "x.model").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"x\.model: not a SentencePiece model"):
        open_tokenizer(tmp_path / "x.model")
