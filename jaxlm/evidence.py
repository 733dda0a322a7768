"""What is kept of a step that stands out, in `events/EVENT/` of the work directory.

event.json       the step, its figures and limits, the positions of its batch, the rows skipped then
config.json      the configuration of the run
batch.npy        ids [B, T + 1], as the step got them
documents.jsonl  every document in the batch: where it is from, and its text
norms.json       loss, gradient norms and activations by layer: of this batch, and of the one before

`jaxlm replay EVENT` runs the batch again.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlm import mesh as mesh_lib
from jaxlm import records, state, workdir
from jaxlm.activity import HERE, Activity
from jaxlm.clock import phase
from jaxlm.data.loader import load
from jaxlm.data.skips import Skips
from jaxlm.data.source import TrainRows
from jaxlm.errors import UserError
from jaxlm.metrics import Writer
from jaxlm.models.transformer import Params
from jaxlm.probe import compile_norms
from jaxlm.run import Opened
from jaxlm.schema import to_dict
from jaxlm.site import Workdir
from jaxlm.trace import Trace


class Bundle(NamedTuple):
    """What was kept of an event."""

    path: Path
    event: dict[str, Any]
    ids_BT1: np.ndarray

    @property
    def positions_B(self) -> np.ndarray:
        """int64[B]."""
        return np.array(self.event["positions"], np.int64)


class Evidence:
    """Writes what there is about an event."""

    def __init__(self, run: Opened):
        self._run, self._norms = run, compile_norms(run.step, run.mesh)

    def __call__(self, event: dict[str, Any], params: Params, step: int, writer: Writer) -> None:
        """All processes call it. `params`: after `step`, which is a step or two later.

        What cannot be written ends no training.
        """
        run = self._run
        with HERE.during(Activity.EVALUATE, f"evidence of {event['event']}"):
            found = None
            if run.cfg.guard.evidence_norms:
                norms = {name: self.norms(params, at) for name, at in batches(event).items()}
                found = {"parameters_after_step": step, **norms}
            if jax.process_index() == 0:
                with writer.going_on("events"):
                    place = f"{run.workdir}/events/{event['event']}"
                    try:
                        _write(run, run.workdir / "events" / event["event"], event, found)
                    except UserError as e:
                        writer.say(f"{place}: the documents of the batch cannot be told ({e})")
                    writer.say(f"evidence is kept in {place}: jaxlm replay {event['event']}")

    def norms(self, params: Params, positions_B: np.ndarray) -> dict[str, Any]:
        """`probe.Norms` of the rows at these positions, as plain data; all processes call it."""
        run = self._run
        rows_BT1 = load(run.corpus.train, mesh_lib.rows_sharding(run.mesh), positions_B)
        rate = np.float32(phase(int(positions_B[0]), run.cfg.dropout_phases()))
        found = self._norms(params, rows_BT1, state.split_position(positions_B), rate)
        return jax.tree.map(lambda x: np.asarray(x).tolist(), found._asdict())


def batches(event: dict[str, Any]) -> dict[str, np.ndarray]:
    """Positions of an event's batch, and of the one before it if there is one: int64[B]."""
    positions_B = np.array(event["positions"], np.int64)
    before_B = Skips(event["skips"]).batch_before(int(positions_B[0]), len(positions_B))
    return {"batch": positions_B} | ({"batch_before": before_B} if before_B.size else {})


def read(directory: Workdir, name: str) -> Bundle:
    """What was kept of an event; `UserError` if there is nothing of that name."""
    place = directory / "events" / name
    try:
        event = records.parsed((place / "event.json").read_text(encoding="utf-8"))
        ids_BT1 = np.load(place / "batch.npy", allow_pickle=False)
    except (OSError, ValueError) as e:
        known = sorted(workdir.kept_events(directory))
        raise UserError(
            f"{place}: no evidence can be read there ({e}); this run has "
            + (", ".join(known) or "none")
        ) from None
    if not isinstance(event, dict) or "skips" not in event:
        raise UserError(f"{place}: was written by an earlier version, and cannot be replayed")
    return Bundle(place, event, ids_BT1)


def _write(run: Opened, place: Path, event: dict[str, Any], norms: dict | None) -> None:
    place.mkdir(parents=True, exist_ok=True)
    positions_B = np.array(event["positions"], np.int64)
    ids = io.BytesIO()
    np.save(ids, run.corpus.train.rows(positions_B), allow_pickle=False)
    (place / "batch.npy").write_bytes(ids.getvalue())
    workdir.write_json(place / "config.json", to_dict(run.cfg))
    if norms is not None:
        workdir.write_json(place / "norms.json", workdir.plain(norms))
    workdir.write_json(place / "event.json", workdir.plain(event))
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in _documents(run, positions_B)]
    workdir.write_text(place / "documents.jsonl", "".join(lines))


def _documents(run: Opened, positions_B: np.ndarray) -> Iterator[dict[str, Any]]:
    if not isinstance(run.corpus.train, TrainRows):
        return  # synthetic rows are of no documents
    trace = Trace(run.cfg, run.workdir)
    for row in trace.rows(positions_B):
        for part in row.parts:
            yield {
                "position": row.position,
                "shard": row.shard.path,
                "shard_row": row.shard_row,
                "epoch": row.epoch,
                "document": part.entry.id,
                "type": part.entry.type,
                "source": part.entry.source,
                "path": part.entry.path,
                "offset": part.entry.offset,
                "first_token": part.first,
                "text": trace.decode(part.ids),
            }
