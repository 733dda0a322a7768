"""The commands that look at a run, from its work directory alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxlm import cli, trace
from jaxlm import workdir as workdirs
from jaxlm.config import load
from jaxlm.data.corpus import open_corpus
from jaxlm.data.documents import Entry
from tests.data_tools import small
from tests.system import runs

pytestmark = pytest.mark.system


def jaxlm(*arguments: str) -> str:
    """Standard output of a command that must succeed, on one device."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxlm", *arguments],
        capture_output=True,
        text=True,
        env=runs.environment(1),
        timeout=runs.PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status(whole, capsys):
    assert cli.main(["status", f"--workdir={whole}"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["state"] == "done"
    assert lines["step"] == str(runs.STEPS)
    assert lines["position"] == lines["end"] == str(4 * runs.STEPS)


def test_evaluate_gives_what_the_last_step_logged(whole):
    output = jaxlm("evaluate", f"--workdir={whole}")
    assert f"step {runs.STEPS} of {whole}" in output
    logged = [m for m in workdirs.metrics(whole) if "heldout/zh/loss" in m][-1]
    assert logged["step"] == runs.STEPS
    scores = json.loads((whole / f"evaluation-{runs.STEPS}.json").read_text())["scores"]
    assert scores.keys() == {"zh", "en"}
    for name, score in scores.items():
        assert score["loss"] == logged[f"heldout/{name}/loss"]
        assert score["bits_per_byte"] == logged[f"heldout/{name}/bits_per_byte"]
        assert re.search(rf"^{name} +{score['loss']:.4f} ", output, re.M)


def test_sample(whole):
    arguments = ("sample", f"--workdir={whole}", "--prompt=中文的", "--max-tokens=20", "--seed=3")
    output = jaxlm(*arguments)
    assert output.startswith("中文的")
    assert len(output.strip()) > len("中文的")
    assert output == jaxlm(*arguments)


# ---- trace ---------------------------------------------------------------------------------------


def raw_text(root: Path, entry: Entry) -> str:
    """A document as it lies in the raw files that `small.write_raw` wrote."""
    path = root / "raw" / entry.source / entry.path
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    return json.loads(path.read_bytes()[entry.offset :].splitlines()[0])["text"]


def test_trace_names_the_documents_of_a_batch(tmp_path, capsys):
    """Of real text that data_tools built, by a run whose batch size has changed on the way."""
    small.write_raw(tmp_path)
    small.run(small.recipe(), tmp_path)
    config = runs.config_file(tmp_path / "run.json", tmp_path / "manifest.json")
    workdir = tmp_path / "run"
    command = runs.train(config, workdir, "model.vocab_size=400", "model.dropout=()")
    for changed in (("train.end=2 steps",), ("train.batch_size=8", "train.end=40 rows")):
        full = [*command, *(f"--config.{c}" for c in changed)]
        code, output = runs.finish(full, tmp_path / "log")
        assert code == 0, output

    lines = jaxlm("trace", f"--workdir={workdir}", "--step=3").splitlines()
    rows = [line for line in lines if line.startswith("row ")]
    assert [row.split(":")[0] for row in rows] == [f"row {8 + i}" for i in range(8)]

    cfg = load(workdir / "config.json")
    corpus = open_corpus(cfg)
    encode, bos = corpus.tokenizer.encode, corpus.bos_id
    traced = list(trace.trace(cfg, 8, 8))
    for row in traced:
        documents = row.documents
        assert all(
            f"  document {d.id}  {d.path} at offset {d.offset}  " in "\n".join(lines)
            for d in documents
        )
        stream = [i for d in documents for i in (bos, *encode(raw_text(tmp_path, d)))]
        start = row.row * 32 - documents[0].start
        ids = corpus.train.rows(np.array([row.position]))[0].tolist()
        assert ids == stream[start : start + 33]  # no padding in these rows
        assert start <= documents[0].tokens
        assert start + 33 > len(stream) - documents[-1].tokens - 1
    assert len({d.id for row in traced for d in row.documents}) > 8

    assert cli.main(["trace", f"--workdir={workdir}", "--step=7"]) == 2
    assert "rows 40 to 47: this run has rows 0 to 39" in capsys.readouterr().err
