"""The tokenizer: its sample is fair and whole, its model lossless and the same everywhere."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece

from data_tools.document import DataError
from data_tools.recipe import TokenizerConfig
from data_tools.stage import Input, Partition
from data_tools.tokenizer.sample import PIECE_BYTES, SCHEMA, pieces, quotas
from data_tools.tokenizer.train import MODEL, TrainConfig, _check_loaded, train_partition
from jaxlm.data.tokenizer import Tokenizer, TokenizerError
from tests.data_tools import small

TEXTS = [f(i) for i in range(40) for f in (small.chinese, small.english, small.code)]


def train(root: Path, texts: list[str], config: TokenizerConfig, name: str = "a") -> Path:
    """Trains on the texts, all of one type."""
    rows = [{"type": "web", "text": piece} for text in texts for piece in pieces(text)]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), root / f"{name}.parquet")
    sample = (Input(root / f"{name}.parquet", name, ""),)
    (root / name).mkdir()
    quota = {"web": config.sample_bytes}
    train_partition(Partition(name, TrainConfig(config, quota), {"sample": sample}), root / name)
    return root / name / MODEL


# ---- sample --------------------------------------------------------------------------------------


def test_quotas_are_equal_and_a_short_type_leaves_its_rest():
    assert quotas({"a": 10, "b": 500, "c": 900}, 310) == {"a": 10, "b": 150, "c": 150}
    assert quotas({"a": 10, "b": 20}, 1000) == {"a": 10, "b": 20}
    assert quotas({}, 5) == {}


@pytest.mark.parametrize(
    "text",
    [
        "一" * 9_000,
        "x" * 20_001,
        "🙂" * 5_000 + "\n" * 6_000,
        "line\n" * 3_000,
        "short",
        "\n\n\tx",
        "a\r\nb\x85c\u2028d\x0b",
    ],
)
def test_pieces_give_the_text_back_and_are_short(text):
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(0 < len(p.encode()) <= PIECE_BYTES for p in cut)


def test_pieces_keep_newlines_inside():
    assert list(pieces("def f():\n\treturn 1\n")) == ["def f():\n\treturn 1\n"]


def test_pieces_leave_out_what_the_trainer_cannot_take():
    assert list(pieces("a\u2581b\u2585c")) == ["abc"]


# ---- training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = TokenizerConfig(vocab_size=500, spares=2, control_symbols=("<user>",))
    return Tokenizer(train(tmp_path_factory.mktemp("model"), TEXTS, config))


def test_reserved_ids(model):
    spm = sentencepiece.SentencePieceProcessor(model_file=str(model.path))
    names = [spm.id_to_piece(i) for i in range(7)]
    assert names == ["<unk>", "<bos>", "<eos>", "<pad>", "<user>", "<spare_0>", "<spare_1>"]
    assert (model.vocab_size, model.bos_id, model.eos_id, model.pad_id) == (500, 1, 2, 3)


def test_control_symbols_do_not_come_from_text(model):
    text = "<bos><user><spare_0><pad>"
    ids = model.encode(text)
    assert min(ids) >= 7 and model.decode(ids) == text


@pytest.mark.parametrize(
    "text", ["\t\tx\r\n\r\n  ", "𠮷🙂未见过", "  ", "ＡＢＣ，。", "a\x00b", *TEXTS[:3]]
)
def test_lossless(model, text):
    assert model.decode(model.encode(text)) == text


def test_newline_and_tab_are_learned(model):
    assert len(model.encode("\n")) == 1 and len(model.encode("\n\tx")) <= 3


def test_the_order_of_the_sample_changes_no_piece(tmp_path, model):
    config = TokenizerConfig(vocab_size=500, spares=2, control_symbols=("<user>",))
    other = train(tmp_path, TEXTS[::-1], config)
    assert Tokenizer(other).hash() == model.hash()


def test_text_without_a_space_gives_a_tokenizer_that_knows_it(tmp_path):
    path = train(tmp_path, [small.chinese(i) for i in range(9)], TokenizerConfig(350, spares=0))
    tokenizer = Tokenizer(path)
    assert len(tokenizer.encode(" ")) == 1 and tokenizer.decode(tokenizer.encode("a  b")) == "a  b"


def test_the_quota_caps_what_is_trained_on(tmp_path):
    texts = [chr(0x4E00 + i) * 30 for i in range(100)]  # 9,000 bytes, 100 characters
    path = train(tmp_path, texts, TokenizerConfig(320, 1.0, sample_bytes=900, spares=0))
    spm = sentencepiece.SentencePieceProcessor(model_file=str(path))
    known = [t for t in texts if spm.piece_to_id(t[0]) != spm.unk_id()]
    assert known == texts[:10]


def test_text_that_is_not_unicode_is_refused(model):
    with pytest.raises(TokenizerError, match="cannot be written as UTF-8"):
        model.encode("a\udcff")


@pytest.mark.parametrize(
    ("texts", "vocab_size", "message"),
    [
        (["abc def"] * 5, 3000, r"vocab_size=3000: 35 bytes of sample text give at most \d+ piec"),
        (["".join(map(chr, range(0x4E00, 0x4F00)))], 300, r"the characters of the sample alone, "),
        (["abc def"] * 5, 10**10, "vocab_size=10000000000: the trainer failed: .*cannot parse"),
        ([], 300, "no text is left to train the tokenizer on"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(tmp_path, texts, vocab_size, message):
    with pytest.raises(DataError, match=message):
        train(tmp_path, texts, TokenizerConfig(vocab_size, character_coverage=1.0))


def test_a_piece_that_the_trainer_skips_stops_the_build():
    log = (
        "Found too long line (5000 > 4192).\nLoaded all 9 sentences\nSkipped 1 too long sentences."
    )
    with pytest.raises(DataError, match=r"took 9 of 10 pieces of text: .*5000 > 4192"):
        _check_loaded(log, 10)
    _check_loaded(log, 9)
