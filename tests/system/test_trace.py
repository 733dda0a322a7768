"""`trace` against what the trainer's steps were given: resumes, other batches, skipped windows."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench import runs
from jaxlm import workdir as workdirs
from jaxlm.config import load
from jaxlm.data.documents import Entry
from jaxlm.trace import Trace
from tests import documented
from tests.data_tools import small

pytestmark = pytest.mark.system

OVERRIDES = ("model.dropout=()", "data.max_epochs=99", "data.seq_len=64", "train.end=300 rows")
EARLY = [[10, 15], [40, 43]]
LATER = [*EARLY, [80, 104], [201, 205]]


def run(root: Path, manifest: Path, *overrides: str, windows: list[list[int]]) -> str:
    """Trains in `root / "run"`, each step's rows in `root / "steps"`; what it said."""
    config = runs.config_file(root / "config.json", manifest)
    workdir, log = root / "run", root / f"{len(overrides)}.log"
    workdir.mkdir(exist_ok=True)
    (workdir / "skips.json").write_text(json.dumps(windows))
    command = runs.train(config, workdir, *OVERRIDES, *overrides)
    command[2:3] = ["bench.record_steps", str(root / "steps")]
    code, output = runs.finish(command, log)
    assert code == 0, output
    return output


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of 4 rows a step that went back to step 18, to skip more rows and to go on with 6."""
    root = tmp_path_factory.mktemp("trace")
    manifest, _ = documented.make(root / "corpus", "best_fit")
    said = run(root, manifest, windows=EARLY)
    assert "skips.json: 8 rows from row 0 on are not trained on" in said
    assert workdirs.status(root / "run")["step"] == (300 - 8) // 4
    runs.go_back(root / "run", 18)
    said = run(root, manifest, "train.batch_size=6", windows=LATER)
    assert "resuming at step 18, row 80" in said
    assert "skips.json: 28 rows from row 80 on are not trained on" in said
    return root


@pytest.fixture(scope="module")
def trace(trained) -> Trace:
    return Trace(load(trained / "run/config.json"), trained / "run")


@pytest.fixture(scope="module")
def given(trained, trace) -> dict[int, np.ndarray]:
    """Step -> the ids that it was given."""
    assert trace.last_step == 18 + (300 - 80 - 28) // 6
    assert trace.last_step == workdirs.status(trained / "run")["step"]
    steps = range(1, trace.last_step + 1)
    return {step: np.load(trained / "steps" / f"{step}.npy") for step in steps}


def test_every_row_of_every_step(trace, given):
    for step, rows in given.items():
        assert rows.shape == (4 if step <= 18 else 6, 65)
        assert (np.stack([row.ids for row in trace.step(step)]) == rows).all(), step
        (last,) = trace.step(step, len(rows) - 1)
        assert (last.ids == rows[-1]).all()


def test_the_steps_of_a_document_are_those_that_were_given_it(tmp_path, trace, given):
    """Its text, from its BOS to what follows, is sought in the rows of all steps."""
    _, documents = documented.make(tmp_path / "again", "best_fit")
    texts = Counter(d.ids for d in documents)
    some = [d for d in documents if texts[d.ids] == 1 and 12 < len(d.ids) < 31][:40]
    assert len(some) > 20
    for made in some:
        wanted = np.array([1, *made.ids])
        found = {
            (step, i)
            for step, rows in given.items()
            for i, row in enumerate(np.pad(rows[:, :64], ((0, 0), (0, 1))))
            for at in np.flatnonzero(row == 1)
            if (row[at : at + len(wanted)] == wanted[: 65 - at]).all()
            and row[at + len(wanted)] in (0, 1)
        }
        sights = trace.sights(trace.document(made.id))
        assert {(s.step, s.row) for s in sights if s.step} == (
            found if made.split == "train" else set()
        )


def test_skips_that_a_resume_brought_change_nothing_before_them(trained, tmp_path):
    """A run that knew all windows from its start ends in the same bits."""
    manifest = trained / "corpus/manifest.json"
    run(tmp_path, manifest, windows=LATER)
    runs.go_back(tmp_path / "run", 18)
    run(tmp_path, manifest, "train.batch_size=6", windows=LATER)
    runs.assert_same(runs.state(tmp_path / "run", 50), runs.state(trained / "run", 50))


# ---- from raw files ------------------------------------------------------------------------------


def raw_text(root: Path, entry: Entry) -> str:
    """A document as it lies in the raw files that `small.write_raw` wrote."""
    path = root / "raw" / entry.source / entry.path
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    return json.loads(path.read_bytes()[entry.offset :].splitlines()[0])["text"]


def test_from_a_step_to_the_raw_files(tmp_path):
    """Of real text that data_tools built."""
    small.write_raw(tmp_path)
    small.run(small.recipe(), tmp_path)
    root = tmp_path / "training"
    root.mkdir()
    overrides = ("train.end=10 steps", "model.vocab_size=400")
    run(root, tmp_path / "manifest.json", *overrides, windows=[])
    trace = Trace(load(root / "run/config.json"), root / "run")
    seen = set[str]()
    for step in range(1, 11):
        for row in trace.step(step):
            for entry, first, ids in row.parts:
                pieces = trace.document(entry.id)
                assert entry in pieces
                text = raw_text(tmp_path, entry)
                assert trace.text(pieces) == text
                assert trace.decode(ids).strip("\ufffd") in text
                assert first >= 0
                seen.add(entry.id)
    assert len(seen) > 8
