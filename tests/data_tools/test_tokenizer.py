"""The tokenizer of a build: a fair and whole sample, the same pieces everywhere, within memory."""

import re
import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_tools.document import DataError, Document, table_writer
from data_tools.drops import VERDICTS
from data_tools.engines import Engine, local
from data_tools.heldout import HeldoutConfig
from data_tools.mixture import MixtureStageConfig
from data_tools.restored import Restored
from data_tools.stage import Commit, Input, Partition, Run, run_stage
from data_tools.tokenizer import make, memory
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.sample import PIECE_BYTES, SCHEMA, TextConfig, pieces, quotas
from data_tools.tokenizer.train import (
    MODEL,
    TrainConfig,
    _check_loaded,
    train_model,
    train_partition,
)
from jaxlm.data.tokenizer import open_tokenizer
from tests.data.tokenizers import SMALL, TEXTS, text


def train(root: Path, texts: Sequence[str], config: TokenizerConfig, name: str = "a") -> Path:
    """Trains on the texts, all of one type."""
    rows = [{"type": "web", "text": piece} for text in texts for piece in pieces(text)]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), root / f"{name}.parquet")
    sample = (Input(root / f"{name}.parquet", name, ""),)
    (root / name).mkdir()
    quota = {"web": config.sample_bytes}
    train_partition(Partition(name, TrainConfig(config, quota), {"sample": sample}), root / name)
    return root / name / MODEL


def spelled(model: Path) -> set[str]:
    """The pieces of a model, as text."""
    return {p.decode(errors="replace") for p in open_tokenizer(model).piece_bytes()}


# ---- proportions ---------------------------------------------------------------------------------


def test_quotas_are_equal_and_a_short_type_leaves_its_rest():
    assert quotas({"a": 10, "b": 500, "c": 900}, 310, {}) == {"a": 10, "b": 150, "c": 150}
    assert quotas({"a": 10, "b": 20}, 1000, {}) == {"a": 10, "b": 20}
    assert quotas({}, 5, {}) == {}


def test_quotas_follow_the_weights():
    sizes = {"a": 1000, "b": 1000, "c": 30, "d": 1000}
    weights = {"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.0}
    assert quotas(sizes, 430, weights) == {"a": 266, "b": 133, "c": 30, "d": 0}
    assert quotas(sizes, 10_000, weights) == {"a": 1000, "b": 1000, "c": 30, "d": 0}


# ---- pieces --------------------------------------------------------------------------------------


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
    assert list(pieces("a\u2581b\u2585c\x01")) == ["abc"] and list(pieces("\x01")) == []


# ---- a build's sample ----------------------------------------------------------------------------

TYPES = {"page": "web", "novel": "book"}


type Surviving = list[tuple[str, dict[str, tuple[Input, ...]]]]


def corpus(root: Path, sources: dict[str, list[list[Document]]]) -> Surviving:
    """Partitions of documents, without verdicts."""
    found = []
    for source, partitions in sources.items():
        for n, documents in enumerate(partitions):
            name = f"{source}-{n:05d}"
            with table_writer(root / f"{name}.parquet") as write:
                for document in documents:
                    write(document)
            inputs = {
                "documents": (Input(root / f"{name}.parquet", name, f"{len(documents)}"),),
                "verdicts": (),
            }
            found.append((name, inputs))
    return found


def document(source: str, n: int, words: str) -> Document:
    return Document.make(words, source, TYPES[source], f"{n}.txt", 0, {})


def runner(root: Path, engine: Engine) -> Run:
    return lambda stage, partitions: run_stage(stage, partitions, root / stage.name, engine)


def trained(
    root: Path,
    surviving: Surviving,
    config: TokenizerConfig,
    workers: int = 1,
    heldout: float = 0.0,
    restored: Restored = (),
    mixture: Sequence[MixtureStageConfig] = (),
) -> Commit:
    engine = local(workers)
    text = TextConfig(HeldoutConfig(0.0, types=(("web", heldout),)), restored)
    partitions = [Partition(name, text, inputs) for name, inputs in surviving]
    try:
        return make.train(runner(root, engine), partitions, TYPES, mixture, config)
    finally:
        engine.close()


def sampled(root: Path) -> list[str]:
    files = sorted((root / "tokenizer_sample").glob("*/sample.parquet"))
    return [row["text"] for file in files for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_do_not_depend_on_the_number_of_workers(tmp_path, kind):
    page = [[document("page", n, text(n)) for n in range(p, 90, 3)] for p in range(3)]
    novel = [[document("novel", n, text(n)) for n in range(200, 260)]]
    surviving = corpus(tmp_path, {"page": page, "novel": novel})
    config = replace(SMALL, kind=kind, sample_bytes=30_000)
    one = trained(tmp_path / "1", surviving, config)
    three = trained(tmp_path / "3", surviving, config, workers=3)
    assert (one.directory / MODEL).read_bytes() == (three.directory / MODEL).read_bytes()
    assert one.report["sample_bytes"].keys() == {"web", "book"}
    assert all(13_000 < n <= 15_000 for n in one.report["sample_bytes"].values())
    assert one.report["kind"] == kind


def test_the_sample_is_a_share_of_what_survives(tmp_path):
    documents = [document("page", n, text(n) * 2) for n in range(400)]
    surviving = corpus(tmp_path, {"page": [documents]})
    gone = [d.id for d in documents[40:]]
    table = pa.table([gone, ["near_duplicate"] * 360, [""] * 360], VERDICTS)
    pq.write_table(table, tmp_path / "verdicts.parquet")
    surviving[0][1]["verdicts"] = (Input(tmp_path / "verdicts.parquet", "v", ""),)
    left = sum(len(d.text.encode()) for d in documents[:40])
    report = trained(tmp_path / "a", surviving, replace(SMALL, sample_bytes=left)).report
    assert report["sample_bytes"] == {"web": left}
    # a restored one is there again
    restored = (gone[7].hex(),)
    trained(tmp_path / "b", surviving, replace(SMALL, sample_bytes=10**6), restored=restored)
    assert Counter(sampled(tmp_path / "b")) == Counter(
        p for d in (*documents[:40], documents[47]) for p in pieces(d.text)
    )


def test_no_held_out_text_is_in_the_sample(tmp_path):
    heldout = HeldoutConfig(0.3)
    documents = {s: [document(s, n, text(n) + s) for n in range(60)] for s in TYPES}
    surviving = corpus(tmp_path, {s: [d] for s, d in documents.items()})
    trained(tmp_path / "a", surviving, SMALL, heldout=0.3)
    kept = {t.strip() for t in sampled(tmp_path / "a")}
    outside = {d.id for d in documents["page"] if d.text not in kept}
    assert outside == {d.id for d in documents["page"] if heldout.holds(d.read_hash, "web")}
    assert 5 < len(outside) < 35
    assert all(d.text in kept for d in documents["novel"])


def test_the_sample_follows_the_mixture(tmp_path):
    sources = {s: [[document(s, n, text(n)) for n in range(500)]] for s in TYPES}
    surviving = corpus(tmp_path, sources)
    mixture = (MixtureStageConfig((("web", 1.0), ("book", 4.0))),)
    config = replace(SMALL, sample_bytes=100_000)
    found = trained(tmp_path / "a", surviving, config, mixture=mixture).report["sample_bytes"]
    assert 18_000 < found["web"] <= 20_000 and 75_000 < found["book"] <= 80_000


def test_where_no_text_is_sampled_the_cause_is_told(tmp_path):
    surviving = corpus(tmp_path, {"page": [[document("page", n, text(n)) for n in range(9)]]})
    with pytest.raises(DataError, match=r"config\.tokenizer\.sample_bytes=1: gives no piece of te"):
        trained(tmp_path / "a", surviving, replace(SMALL, sample_bytes=1))
    held = r"no text is left .*is held out \(.*types=\(\('web', 0\.9999999999\),\)\)"
    with pytest.raises(DataError, match=held):
        trained(tmp_path / "b", surviving, SMALL, heldout=1 - 1e-10)
    mixture = (MixtureStageConfig((("web", 0.0), ("book", 1.0))),)
    with pytest.raises(DataError, match="or is of a type that the mixture leaves out; loosen"):
        trained(tmp_path / "c", surviving, SMALL, mixture=mixture)


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_newlines_tabs_and_indentation_are_learned(tmp_path, kind):
    body = [
        f"def f{i}(x):\n\tif x:\n\t\ty_{i} = x\n\t\treturn y\n\n\nclass A{i}:\n"
        f"    def g(self):\n        for i in self:\n            yield {i}\nx\t\ty\t\t{i}\n"
        for i in range(200)
    ]
    config = TokenizerConfig(vocab_size=400, kind=kind, control_symbols=(), reserved=0)
    model = train(tmp_path, [*body, *TEXTS], config)
    assert {"\n", "\t", "\t\t", "\n\t\t", "    "} <= spelled(model)
    tokenizer = open_tokenizer(model)
    # a newline and what the next line is indented with
    assert [len(tokenizer.encode(t)) for t in ("\n\t\t", "\n    ", "\n        ")] == [1, 2, 2]


def test_256_control_symbols_are_the_default_and_none_comes_from_text(tmp_path):
    path = train(tmp_path, TEXTS, TokenizerConfig(vocab_size=620))
    tokenizer = open_tokenizer(path)
    controls = tokenizer.controls()
    named = TokenizerConfig().control_symbols
    numbered = [f"<reserved_{i}>" for i in range(256 - len(named))]
    assert list(controls) == ["<bos>", "<eos>", "<pad>", *named, *numbered]
    for name in controls:
        ids = tokenizer.encode(f"{name} a{name}b")
        assert not set(ids) & set(controls.values())
        assert tokenizer.decode(ids) == f"{name} a{name}b"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_character_comes_back_but_the_mark_of_a_space(tmp_path, kind):
    tokenizer = open_tokenizer(train(tmp_path, TEXTS, replace(SMALL, kind=kind)))
    every = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000 and i != 0x2581]
    for start in range(0, len(every), 50_000):
        text = "".join(every[start : start + 50_000])
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode("a\u2581b")) == "a b"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_no_piece_that_is_learned_is_a_control_symbol(kind):
    symbols = ("<a>", "[x1]", "<系统>", "<|end|>", "[a b]", "<x_y>", "[->a]")
    texts = [f"{symbol}{text(n)}{symbol} {symbol}" for n in range(60) for symbol in symbols]
    config = TokenizerConfig(kind=kind, vocab_size=400, control_symbols=symbols, reserved=9)
    assert train_model(config, texts)  # the trainer refuses a piece that is one already


def test_the_order_of_the_sample_changes_no_piece(tmp_path):
    one, other = (train(tmp_path, t, SMALL, n) for n, t in (("a", TEXTS), ("b", TEXTS[::-1])))
    assert open_tokenizer(one).hash() == open_tokenizer(other).hash()


def test_text_without_a_space_gives_a_tokenizer_that_knows_it(tmp_path):
    path = train(
        tmp_path,
        ["天地玄黄宇宙洪荒" * 9],
        TokenizerConfig(vocab_size=285, reserved=0, control_symbols=()),
    )
    tokenizer = open_tokenizer(path)
    assert len(tokenizer.encode(" ")) == 1 and tokenizer.decode(tokenizer.encode("a  b")) == "a  b"


def test_the_quota_caps_what_is_trained_on(tmp_path):
    texts = [chr(0x4E00 + i) * 30 for i in range(100)]  # 9,000 bytes, 100 characters
    config = TokenizerConfig(
        vocab_size=320, character_coverage=1.0, sample_bytes=900, reserved=0, control_symbols=()
    )
    known = spelled(train(tmp_path, texts, config))
    assert [t[0] in known for t in texts] == [True] * 10 + [False] * 90


@pytest.mark.parametrize(
    ("texts", "vocab_size", "message"),
    [
        (["abc def"] * 5, 3000, r"vocab_size=3000: 35 bytes of sample text give at most \d+ piec"),
        (["".join(map(chr, range(0x4E00, 0x4F00)))], 540, r"the characters of the sample alone, "),
        (["abc def"] * 5, 10**10, "vocab_size=10000000000: the trainer failed: .*cannot parse"),
        ([], 300, "sample_bytes=536870912: gives no piece of text to train on, which has up to 4,"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(texts, vocab_size, message):
    with pytest.raises(DataError, match=message):
        train_model(TokenizerConfig(vocab_size=vocab_size, character_coverage=1.0), texts)


def test_a_piece_that_the_trainer_skips_stops_the_build():
    with pytest.raises(DataError, match=r"took 2 of 3 pieces of text: .*16000"):
        train_model(TokenizerConfig(vocab_size=540), ["abc def " * 9, "x" * 17_000, "ghi jkl"])
    with pytest.raises(DataError, match=r"took an unknown number of 9 pieces of text"):
        _check_loaded("", 9)


# ---- identifiers ---------------------------------------------------------------------------------


def test_a_name_becomes_a_piece_and_nothing_joins_words_of_two_kinds(tmp_path):
    code = [f"user_id = get_user_id(__init__)  # 中文，{i}。\n\t\t\tx\n" for i in range(99)]
    config = replace(SMALL, vocab_size=440)
    found = spelled(train(tmp_path, [*TEXTS, *code], config))
    assert {" get_user_id", "__init__", "\n\t\t\t", " 中文"} <= found
    word = re.compile(r" *(?:[\u4e00-\u9fff]*|[A-Za-z_]*|[^\w ]*|\d)| \u2047 ")  # or <unk>
    assert all(word.fullmatch(piece) for piece in found)


def test_unigram_counts_in_32_bits():
    with pytest.raises(ValueError, match="kind='unigram' takes at most 2147483647; ask for less"):
        TokenizerConfig(kind="unigram", sample_bytes=1 << 31)


# ---- memory --------------------------------------------------------------------------------------


def test_a_training_that_does_not_fit_is_refused_with_what_would():
    config = TokenizerConfig(sample_bytes=10**9)
    size = memory.Size(10**9, 400 * 10**6)  # 100 million narrow characters, 300 million wide ones
    needed = memory.predicted_bytes(config, size)
    assert memory.check_fits(config, size, needed) == needed
    assert memory.check_fits(config, size, None) == needed
    with pytest.raises(DataError, match=r"sample_bytes=1000000000: training bpe on .* GB") as e:
        memory.check_fits(config, size, needed // 2)
    fits = int(str(e.value).split("set sample_bytes to ")[1].split()[0])
    assert 0.4e9 < fits < 0.5e9
    share = fits / 10**9
    smaller = memory.Size(fits, int(size.characters * share))
    assert memory.check_fits(config, smaller, needed // 2) <= needed // 2


def test_the_prediction_is_above_the_peak_and_both_are_reported(tmp_path):
    (tmp_path / "a").mkdir()
    rows = [{"type": "web", "text": text(n)} for n in range(6_000)]  # 2 MB
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "a.parquet")
    sample = (Input(tmp_path / "a.parquet", "a", ""),)
    config = TrainConfig(replace(SMALL, vocab_size=1_500), {"web": 10**7})
    report = train_partition(Partition("a", config, {"sample": sample}), tmp_path / "a")
    assert 2_000_000 < report["peak_bytes"] < report["predicted_bytes"] < 400_000_000


def test_the_peak_is_that_of_the_block():
    before = [bytearray(100_000) for _ in range(700)]
    last = before.pop()  # above the others: what they leave free stays with the process
    del before
    with memory.measured() as peak:
        here = bytearray(32 << 20)
        del here
    del last
    assert peak.bytes is not None and 31 << 20 <= peak.bytes < 40 << 20


def test_available_is_what_machine_container_and_limit_leave(tmp_path, monkeypatch):
    total = int(Path("/proc/meminfo").read_text().split()[1]) << 10
    available = memory.available_bytes()
    assert available is not None and 0 < available < total
    for name, content in (
        ("max", "300000000\n"),
        ("current", "250000000\n"),
        ("stat", "anon 9\ninactive_file 3000000\nactive_file 1000000\n"),
    ):
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available_bytes() == 54_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.available_bytes() or 0) > 54_000_000
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + (40 << 20), limits[1]))
    try:
        assert 20 << 20 < (memory.available_bytes() or 0) <= 44 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
