"""Held-out loss by type: nats a target, perplexity, and bits a byte of text.

Bits per byte do not depend on the tokenizer: two runs with different vocabularies can be compared.
"""

import contextlib
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxlm import mesh as mesh_lib
from jaxlm.data.corpus import Corpus
from jaxlm.data.loader import Loader
from jaxlm.data.source import HeldOutRows
from jaxlm.data.synthetic import SyntheticHeldOut
from jaxlm.models.transformer import Params
from jaxlm.step import EvalSums, StepDef, compile_eval_step


class Score(NamedTuple):
    """The model on one type of held-out text."""

    loss: float
    """Nats a target."""
    bits_per_byte: float | None
    """None for synthetic rows, which stand for no text."""
    targets: int

    @property
    def perplexity(self) -> float:
        """exp of the loss; infinite where that is more than a float holds."""
        return math.exp(self.loss) if self.loss < 709 else math.inf


class Evaluator:
    """Compiled once, called with the parameters of any step."""

    def __init__(self, step: StepDef, corpus: Corpus, mesh: Mesh, batch_size: int, rows: int):
        """At most `rows` held-out rows a type, 0 takes all; as many at once as in a microbatch."""
        self._step = compile_eval_step(step, mesh)
        self._heldout = corpus.heldout
        self._piece_bytes_V = jax.device_put(
            corpus.piece_bytes_V(step.model.cfg.padded_vocab), mesh_lib.replicated(mesh)
        )
        self._sharding = mesh_lib.rows_sharding(mesh)
        self._batch, self._rows = batch_size // step.microbatches, rows

    def __call__(self, params: Params) -> dict[str, Score]:
        """Type -> its score."""
        return {name: self._score(params, name) for name in self._heldout}

    def _score(self, params: Params, name: str) -> Score:
        source = self._heldout[name]
        rows = min(len(source), self._rows) if self._rows else len(source)
        first = _First(source, rows)
        end = -(-rows // self._batch) * self._batch
        total = np.zeros(3)
        with Loader(first, self._sharding, self._batch, 0, end) as loader:
            dispatched = (
                self._step(params, batch.rows_BT, self._piece_bytes_V) for batch in loader
            )
            for sums in _one_late(dispatched):
                total += np.array([float(x) for x in sums])
        nll, targets, text_bytes = total.tolist()
        bits_per_byte = nll / math.log(2) / text_bytes if text_bytes else None
        return Score(nll / targets, bits_per_byte, int(targets))


def _one_late(results: Iterable[EvalSums]) -> Iterator[EvalSums]:
    """Each when the next has been asked for: the device has work while one is read."""
    before: list[EvalSums] = []
    for result in results:
        yield from before
        before = [result]
    yield from before


class _First:
    """The first rows of a source; padding, which weighs nothing, fills the last batch."""

    def __init__(self, source: HeldOutRows | SyntheticHeldOut, rows: int):
        self.seq_len = source.seq_len
        self._source, self._rows = source, rows

    def stream(self, batches: Sequence[np.ndarray]) -> Generator[np.ndarray]:
        """ids[N, T + 1] at each of these batches of positions (int64[N]), in turn."""
        with contextlib.closing(self._source.stream(batches)) as found:
            for positions, ids in zip(batches, found, strict=True):
                pad = ids.dtype.type(self._source.pad_id)
                yield np.where(positions[:, None] < self._rows, ids, pad)


def table(scores: Mapping[str, Score]) -> str:
    """The scores as lines of text."""
    lines = [f"{'type':<14}{'loss':>9}{'perplexity':>12}{'bits/byte':>11}{'targets':>11}"]
    for name, s in scores.items():
        bits = "-" if s.bits_per_byte is None else f"{s.bits_per_byte:.4f}"
        lines.append(f"{name:<14}{s.loss:>9.4f}{s.perplexity:>12.2f}{bits:>11}{s.targets:>11,}")
    return "\n".join(lines)


def as_metrics(scores: Mapping[str, Score]) -> dict[str, float]:
    """Flat names for `metrics.jsonl` and TensorBoard."""
    flat = {}
    for name, score in scores.items():
        flat[f"heldout/{name}/loss"] = score.loss
        if score.bits_per_byte is not None:
            flat[f"heldout/{name}/bits_per_byte"] = score.bits_per_byte
    return flat
