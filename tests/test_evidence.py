"""What is kept of an event is what the step was given, and the norms are those of the step."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxlm import evidence, run, state, train
from jaxlm import mesh as mesh_lib
from jaxlm.config import Config, DataConfig, EvaluateConfig, MeshConfig, TrainConfig
from jaxlm.data.corpus import open_corpus
from jaxlm.data.loader import Batch, load
from jaxlm.data.skips import NO_SKIPS
from jaxlm.errors import UserError
from jaxlm.evidence import Evidence
from jaxlm.guard import NO_LIMITS
from jaxlm.step import compile_train_step, read_rows
from tests import documented, tiny
from tests.test_trace import SEQ_LEN, config, write_run

POSITIONS = np.array([8, 9, 10, 13, 14, 15, 16, 17])
EVENT = {"event": "00000002-8-spike", "step": 2, "before": 8, "positions": POSITIONS.tolist()}
EVENT |= {"skips": [[11, 13]]}

CONFIG = Config(
    model=replace(tiny.MODEL, dropout=(("0 rows", 0.1),)),
    data=DataConfig(source="synthetic", seq_len=tiny.T),
    train=TrainConfig(batch_size=8, rows_per_device=1, end="10 steps"),
    evaluate=EvaluateConfig(every=None),
)


class Said:
    """A writer that keeps what it is told."""

    def __init__(self):
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def going_on(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.mark.parametrize("mesh", [(1, 1, 1), (2, 2, 2)], ids=str)
def test_norms_are_those_of_the_step(mesh, tmp_path):
    """Each layer's; together they make the gradient norm of the step, dropout included."""
    cfg = replace(CONFIG, mesh=MeshConfig(*mesh))
    devices = jax.devices()[: int(np.prod(mesh))]
    opened_mesh = mesh_lib.make(cfg.mesh, devices)
    corpus = open_corpus(cfg)
    step, where = run.make_step(cfg, opened_mesh, corpus.bos_id, corpus.pad_id)
    opened = run.Opened(cfg, tmp_path, corpus, opened_mesh, step, where, NO_SKIPS)
    with jax.set_mesh(opened_mesh):
        fresh = state.init(step.model, step.optimizer, 0, where)
        found = Evidence(opened).norms(fresh.params, POSITIONS)
        squares = sum(np.square(x).sum() for x in found["gradients"].values())
        rows = load(corpus.train, mesh_lib.rows_sharding(opened_mesh), POSITIONS)
        residual = residual_rms(step, fresh.params, rows)
        batch = Batch(rows, POSITIONS, 18)
        controls = train.Host(opened).controls(batch, save=0, stop=False, limits=NO_LIMITS)
        _, metrics = compile_train_step(step, opened_mesh, where)(fresh, rows, controls)
    np.testing.assert_allclose(np.sqrt(squares), metrics.grad_norm, rtol=1e-5)
    np.testing.assert_allclose(found["loss"], metrics.loss, rtol=1e-6)
    assert len(found["residual_rms"]) == tiny.MODEL.n_layers
    assert len(found["gradients"]["blocks/mlp/down/kernel"]) == tiny.MODEL.n_layers
    # Without dropout, which adds a little to them.
    np.testing.assert_allclose(found["residual_rms"], residual, rtol=0.1)


def residual_rms(step, params, rows) -> np.ndarray:
    """The same from the whole activations, on one device."""
    params, rows, one = jax.device_get(params), jax.device_get(rows), tiny.mesh((1, 1, 1))
    with jax.set_mesh(one):
        inputs = read_rows(rows, step.bos_id, step.pad_id)
        params = jax.device_put(params, mesh_lib.replicated(one))
        _, x_LBTD = step.model._forward(
            params, inputs.tokens, inputs.segments, inputs.positions, None, lambda x: x
        )
    return np.sqrt(np.square(np.asarray(x_LBTD, np.float64)).mean((1, 2, 3)))


def test_what_is_kept_is_what_the_step_was_given(tmp_path):
    prepared = run.prepare(replace(CONFIG, mesh=MeshConfig(2, 2, 2)), tmp_path)
    writer = Said()
    with jax.set_mesh(prepared.mesh):
        model, optimizer = prepared.step.model, prepared.step.optimizer
        params = state.init(model, optimizer, 0, prepared.where).params
        event = {**EVENT, "loss": float("nan")}
        Evidence(prepared)(event, params, 3, writer)
    prepared.checkpoints.close()
    prepared.snapshots.close()
    place = tmp_path / "events" / EVENT["event"]
    assert f"evidence is kept in {place}" in writer.lines[-1]
    bundle = evidence.read(tmp_path, EVENT["event"])
    assert np.array_equal(bundle.ids_BT1, prepared.corpus.train.rows(POSITIONS))
    assert np.array_equal(bundle.positions_B, POSITIONS) and bundle.event["loss"] == "nan"
    norms = json.loads((place / "norms.json").read_text())
    assert norms["parameters_after_step"] == 3
    assert norms["batch"]["loss"] != norms["batch_before"]["loss"]
    before = evidence.batches(bundle.event)["batch_before"]
    assert before.tolist() == [*range(8)]
    assert (place / "documents.jsonl").read_text() == ""  # synthetic rows are of none


def test_the_batch_before_is_that_of_the_time_of_the_event():
    """Whatever the run has jumped over since."""
    event = {"positions": [40, 41, 44, 45], "skips": [[32, 38], [42, 44]]}
    assert evidence.batches(event)["batch_before"].tolist() == [30, 31, 38, 39]
    assert list(evidence.batches({"positions": [0, 1, 2, 3], "skips": []})) == ["batch"]


def test_evidence_of_an_earlier_version(tmp_path):
    place = tmp_path / "events" / "one"
    place.mkdir(parents=True)
    (place / "event.json").write_text("{}")
    np.save(place / "batch.npy", np.zeros((1, 2)))
    with pytest.raises(UserError, match="by an earlier version, and cannot be replayed"):
        evidence.read(tmp_path, "one")


def test_an_event_that_is_not_there(tmp_path):
    (tmp_path / "events" / "one").mkdir(parents=True)
    (tmp_path / "events" / "one" / "event.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"other: no evidence can be read there .* this run has one"
    ):
        evidence.read(tmp_path, "other")


def test_a_batch_of_pickles_is_not_opened(tmp_path):
    place = tmp_path / "events" / "bad"
    place.mkdir(parents=True)
    (place / "event.json").write_text("{}")
    np.save(place / "batch.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="allow_pickle=False"):
        evidence.read(tmp_path, "bad")


def test_documents_are_told_with_their_text(tmp_path):
    manifest, made = documented.make(tmp_path / "corpus")
    cfg, workdir = config(manifest), tmp_path / "run"
    write_run(workdir, cfg)
    opened = run.Opened(
        cfg,
        workdir,
        open_corpus(cfg),
        None,
        None,
        None,
        NO_SKIPS,  # pyright: ignore
    )
    lines = list(evidence._documents(opened, np.array([44, 45])))
    texts = {d.id: d.text for d in made}
    assert len(lines) > 2 and {line["position"] for line in lines} == {44, 45}
    for line in lines:
        assert line["text"] in texts[line["document"]] and Path(line["shard"]).suffix
    assert sum(len(line["text"]) for line in lines) > SEQ_LEN / 4
