"""`trace`: a batch's documents, and a document's steps, against batches that were read."""

import random
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxlm import cli, workdir
from jaxlm.config import Config, DataConfig, ModelConfig, TrainConfig
from jaxlm.data import fingerprint
from jaxlm.data.corpus import open_corpus
from jaxlm.data.documents import TABLE, order_key, shard_of
from jaxlm.data.loader import Loader
from jaxlm.data.manifest import Packing
from jaxlm.data.skips import Skips
from jaxlm.errors import UserError
from jaxlm.schema import to_dict
from jaxlm.trace import Trace, TracedRow
from jaxlm.trace_lines import CONTROLS, _origin
from jaxlm.workdir import Start
from tests import documented
from tests.data import read_batches
from tests.documented import Made

SEQ_LEN = 2 * documented.CHUNK
END = 240
DONE = 88
FIRST, LATER = [[16, 20]], [[16, 20], [48, 56], [100, 112]]
"""Windows: those that the run began with, and those at its second start, from row 44 on."""


def config(manifest: Path, batch_size: int = 8, end: int = END) -> Config:
    return Config(
        model=ModelConfig(vocab_size=320),
        data=DataConfig(manifest=str(manifest), seq_len=SEQ_LEN, block_rows=20, max_epochs=1e6),
        train=TrainConfig(batch_size=batch_size, end=f"{end} rows"),
    )


def write_run(directory: Path, cfg: Config) -> None:
    """The small files of a run of 10 steps of 4 rows and then of others, as the trainer leaves
    them."""
    digest = fingerprint.digest(open_corpus(cfg).train.fingerprint())
    directory.mkdir()
    workdir.write_json(directory / "config.json", to_dict(cfg))
    for step, position, size, windows in ((0, 0, 4, FIRST), (10, 44, cfg.train.batch_size, LATER)):
        start = Start(step, position, size, 1, 1, [1, 1, 1], digest, windows, [], "2026")
        workdir.append_start(directory, start)
    workdir.write_status(directory, "training", 14, DONE, cfg.end, saved=None)


class Case:
    """A corpus, a run on it, and a trace of it."""

    def __init__(self, root: Path, packing: Packing):
        manifest, documents = documented.make(root / "corpus", packing)
        self.documents: dict[str, Made] = {d.id: d for d in documents}
        self.cfg, self.directory = config(manifest), root / "run"
        write_run(self.directory, self.cfg)
        self.trace = Trace(self.cfg, self.directory)


@pytest.fixture(scope="module", params=["concat", "best_fit"])
def case(request, tmp_path_factory) -> Case:
    return Case(tmp_path_factory.mktemp("trace"), request.param)


@pytest.fixture(scope="module")
def batches(case) -> list[list[TracedRow]]:
    """Every step of the run, traced."""
    return [case.trace.step(step) for step in range(1, case.trace.last_step + 1)]


def test_the_rows_of_a_step_are_those_of_its_batch(case, batches):
    rows, sharding = open_corpus(case.cfg).train, read_batches.sharding((1, 1, 1), (0, 1, 2))
    read: list[tuple[np.ndarray, np.ndarray]] = []
    for size, start, end, windows in ((4, 0, 44, FIRST), (8, 44, END, LATER)):
        with Loader(rows, sharding, size, start, end, Skips(windows)) as loader:
            read += [(b.positions_B, np.asarray(b.rows_BT)) for b in loader]
    assert len(read) == len(batches) == 10 + (END - 44 - 8 - 12) // 8
    for step, ((positions, ids), traced) in enumerate(zip(read, batches, strict=True), start=1):
        assert [row.position for row in traced] == positions.tolist()
        assert [(row.step, row.row) for row in traced] == [(step, i) for i in range(len(ids))]
        assert (np.stack([row.ids for row in traced]) == ids).all()


def test_the_parts_of_a_row_are_its_targets_and_the_documents_tokens(case, batches):
    for traced in (row for batch in batches for row in batch):
        parts = [i for part in traced.parts for i in part.ids.tolist()]
        targets = traced.ids[1:]
        assert parts == targets[(targets != 0) & (targets != 1)].tolist()
        for entry, first, ids in traced.parts:
            made = case.documents[entry.id]
            assert ids.tolist() == list(made.ids[first : first + len(ids)])
            assert (traced.shard.source, entry.split) == (made.source, made.split)


def test_all_steps_of_every_document(case, batches):
    """Against looking at each position up to the end, the skipped ones too."""
    seen = defaultdict(set)
    everything = case.trace.rows(np.arange(END))
    for traced in everything:
        for part in traced.parts:
            place = (traced.position, traced.epoch, traced.shard_row, traced.step, traced.row)
            seen[part.entry.id].add(place)
    assert {row.position for row in everything if not row.step} == {
        *range(16, 20), *range(48, 56), *range(100, 112)
    }  # fmt: skip
    assert sum(len(batch) for batch in batches) == sum(row.step > 0 for row in everything)
    for id in case.documents:
        sights = case.trace.sights(case.trace.document(id))
        assert sights == sorted(seen[id])
    assert max(s[1] for sights in seen.values() for s in sights) >= 1, "more than one epoch"
    assert sum(not seen[id] for id in case.documents) < 30


def test_the_text_of_a_document(case):
    for made in case.documents.values():
        pieces = case.trace.document(made.id)
        assert [p.skip for p in pieces] == sorted(p.skip for p in pieces)
        assert sum(p.tokens for p in pieces) == len(made.ids)
        assert case.trace.text(pieces) == made.text


def test_quality_and_cluster(case, batches):
    entries = {part.entry for batch in batches for row in batch for part in row.parts}
    assert {entry.quality for entry in entries} == {0.5}
    assert {entry.cluster for entry in entries} > {None}
    assert all(entry.cluster in (None, entry.id) for entry in entries)
    assert {(e.source, e.type, e.path) for e in entries} == {
        ("web", "web", "web.jsonl"),
        ("code", "code", "code.jsonl"),
    }


# ---- the command ---------------------------------------------------------------------------------


def jaxlm(case: Case, capsys, *arguments: str) -> list[str]:
    assert cli.main(["trace", f"--workdir={case.directory}", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def refused(case: Case, capsys, *arguments: str) -> str:
    assert cli.main(["trace", f"--workdir={case.directory}", *arguments]) == 2
    return capsys.readouterr().err


def test_a_step_as_it_is_printed(case, batches, capsys):
    lines = jaxlm(case, capsys, "--step=12")
    rows = batches[11]
    positions = f"positions {rows[0].position} to {rows[-1].position}"
    assert lines[0] == f"step 12 of 32, done: 8 rows, {positions}"
    assert [line for line in lines if line.startswith("row ")] == [
        f"row {row.row}: position {row.position}, {row.shard.source} epoch {row.epoch}, "
        f"{row.shard.path} row {row.shard_row}"
        for row in rows
    ]
    listed = [line for line in lines if re.match("  [0-9a-f]{32}  ", line)]
    parts = [part for row in rows for part in row.parts]
    for line, part in zip(listed, parts, strict=True):
        e = part.entry
        cluster = f"  cluster {e.cluster}" if e.cluster else ""
        assert line == (
            f"  {e.id}  {e.type}  {e.path} of {e.source} at {e.offset}  quality 0.50{cluster}"
            f"  tokens {part.first} to {part.first + len(part.ids) - 1}"
        )
    assert jaxlm(case, capsys, "--step=15")[0].startswith("step 15 of 32, to come: 8 rows")
    spans = jaxlm(case, capsys, "--step=11")[0]
    assert spans.endswith("positions 44 to 59, 8 between them skipped")


def test_one_row_and_its_text(case, batches, capsys):
    lines = jaxlm(case, capsys, "--step=12", "--row=3", "--text")
    row = batches[11][3]
    assert lines[0] == "step 12 of 32, done"
    assert [line for line in lines if line.startswith("row ")] == [
        f"row 3: position {row.position}, {row.shard.source} epoch {row.epoch}, "
        f"{row.shard.path} row {row.shard_row}"
    ]
    texts = [case.trace.decode(part.ids) for part in row.parts]
    printed = [line[4:] for line in lines if line.startswith("    ")]
    assert printed == [line for text in texts for line in text.split("\n")]
    assert jaxlm(case, capsys, f"--position={row.position}", "--text")[1:] == lines[1:]


def test_a_position_that_is_skipped(case, capsys):
    lines = jaxlm(case, capsys, "--position=17")
    assert lines[0] == "in no step: skipped"
    assert lines[1].startswith("position 17, ")


def test_a_terminal_is_not_commanded(case):
    assert "\x1b[2J\x9b2J\t中\n".translate(CONTROLS) == "\u241b[2J\ufffd2J\t中\n"
    entry = case.trace.document(next(iter(case.documents)))[0]
    assert "  a\u240ab of " in _origin(replace(entry, path="a\nb"))


def test_a_document_as_it_is_printed(case, capsys):
    id = max(case.documents, key=lambda id: len(case.trace.sights(case.trace.document(id))))
    sights = case.trace.sights(case.trace.document(id))
    lines = jaxlm(case, capsys, f"--document={id}", "--text")
    assert lines[0].startswith(f"document {id}  ")
    at = lines.index(f"done, the run is at position {DONE}:")
    past = [s for s in sights if s.step and s.position < DONE]
    assert lines[at + 1 : at + 1 + len(past)] == [
        f"  step {s.step}, row {s.row}: position {s.position}, epoch {s.epoch} of its source"
        for s in past
    ]
    later = [s for s in sights if s.step and s.position >= DONE]
    assert len([line for line in lines if line.startswith("  step ")]) == len(past) + len(later)
    assert lines.index("to come:") == at + 1 + len(past)
    text = "\n".join(line[4:] for line in lines if line.startswith("    "))
    assert text == case.trace.text(case.trace.document(id))


def test_an_id_in_capitals(case, capsys):
    id = next(iter(case.documents))
    assert jaxlm(case, capsys, f"--document={id.upper()}") == jaxlm(
        case, capsys, f"--document={id}"
    )


def test_swapped_or_missing_tables_name_no_documents(case, tmp_path, capsys):
    manifest = Path(case.cfg.data.manifest)
    moved = f"--config.data.manifest={tmp_path / 'corpus' / manifest.name}"
    shutil.copytree(manifest.parent, tmp_path / "corpus")
    one, other, *others = (tmp_path / "corpus/shards").glob(f"*.train-*/{TABLE}")
    away = one.with_name("away")
    one.rename(away)
    other.rename(one)
    away.rename(other)
    message = refused(case, capsys, "--step=12", moved)
    assert re.search(r"documents\.parquet: (\d+ bytes, the manifest|is the table of)", message)
    for table in (one, other, *others):
        table.unlink()
    for what in ("--step=12", f"--document={next(iter(case.documents))}"):
        assert f"{TABLE}: is missing; restore it" in refused(case, capsys, what, moved)


def test_a_document_that_is_held_out(case, capsys):
    id = next(d.id for d in case.documents.values() if d.split == "heldout")
    assert case.trace.sights(case.trace.document(id)) == []
    assert "held out for evaluation: no step trains on it" in jaxlm(
        case, capsys, f"--document={id}"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step=33"], "step 33: this run has steps 1 to 32"),
        (["--step=0"], "step 0: the first step in history.jsonl is 1"),
        (["--step=3", "--row=4"], "row 4: the batch of step 3 has rows 0 to 3"),
        (["--position=240"], "position 240: this run has positions 0 to 239"),
        (["--position=1", "--row=1"], "--row=1: is a row of a step; give --step too"),
        (["--document=12"], "--document=12: is no document id; write its 32 hex digits"),
        ([f"--document={'0' * 32}"], "this corpus has no such document; `python -m data_tools ex"),
        (["--step=1", "--config.data.seed=1"], "but {run} was last started with "),
    ],
)
def test_what_is_refused(case, capsys, arguments, message):
    assert message.format(run=case.directory) in refused(case, capsys, *arguments)


def test_synthetic_rows_have_no_documents(tmp_path):
    cfg = Config(data=DataConfig(source="synthetic"), train=TrainConfig(end="10 steps"))
    start = Start(0, 0, 8, 1, 1, [1, 1, 1], "data", [], [], "2026")
    workdir.append_start(tmp_path, start)
    with pytest.raises(UserError, match="synthetic rows come from no documents"):
        Trace(cfg, tmp_path)


def test_it_does_not_wait_for_jax(case):
    id = next(iter(case.documents))
    for what in ("--step=3", f"--document={id}"):
        command = [sys.executable, "-X", "importtime", "-m", "jaxlm", "trace", what, "--text"]
        done = subprocess.run(
            [*command, f"--workdir={case.directory}"], capture_output=True, text=True, check=True
        )
        imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
        assert "pyarrow" in imported
        assert imported.isdisjoint({"jax", "jaxlib", "grain", "flax", "orbax"})


# ---- work ----------------------------------------------------------------------------------------


def test_a_million_steps_take_no_more_tables_than_one(tmp_path):
    """The tables that a look-up does not need are gone: it succeeds without them."""
    manifest, documents = documented.make(tmp_path / "corpus")
    cfg, directory = config(manifest, 1, 1_000_054), tmp_path / "run"
    write_run(directory, cfg)
    trace = Trace(cfg, directory)
    assert trace.last_step == 1_000_000
    made = next(d for d in documents if d.source == "web.q1" and len(d.ids) > 50)
    (piece,) = trace.document(made.id)
    (row,) = trace.step(700_000)

    tables = {t.parent.name: t for t in (tmp_path / "corpus/shards").glob(f"*/{TABLE}")}

    def leave(*shards: str) -> Trace:
        """A new trace where these shards alone have their tables."""
        for name, table in tables.items():
            kept = tmp_path / name
            table.rename(kept) if table.exists() else None
            kept.rename(table) if name in shards else None
        return Trace(cfg, directory)

    (again,) = leave(Path(row.shard.path).parent.name).step(700_000)
    assert [part.entry for part in again.parts] == [part.entry for part in row.parts] != []
    # By its key, in each source up to its own; then by arithmetic.
    key = order_key(bytes.fromhex(made.id), documented.SALT)
    found = leave(f"web.q0.train-{shard_of(key, 2):05d}-of-00002", piece.shard)
    assert found.document(made.id) == [piece]
    sights = leave().sights([piece])
    assert len(sights) > 1_000

    trace = leave(piece.shard)
    for sight in random.Random(0).sample(sights, 20):
        (row,) = trace.rows(np.array([sight.position]))
        assert (row.step, row.row, row.epoch) == (sight.step, sight.row, sight.epoch)
        assert made.id in {part.entry.id for part in row.parts}
