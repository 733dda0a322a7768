"""Held-out scores: of each target once, whatever the batch and the mesh."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxlm import loss, state
from jaxlm.config import LossConfig
from jaxlm.data.corpus import Corpus
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticHeldOut, SyntheticRows
from jaxlm.evaluate import Evaluator, Score, as_metrics, table
from jaxlm.models.transformer import Params
from jaxlm.step import StepDef, read_rows
from tests import tiny
from tests.tiny import MODEL, T

ROWS = 10
MADE_BY = (0, T, MODEL.vocab_size)


class Pieces:
    """Stands for the tokenizer: token i is i bytes of text."""

    vocab_size = MODEL.vocab_size

    def piece_bytes_V(self) -> np.ndarray:
        return np.arange(self.vocab_size, dtype=np.int32)


@pytest.fixture(scope="module")
def step() -> StepDef:
    return tiny.step_def(loss=LossConfig(z_loss=1.0))  # not part of a score


@pytest.fixture(scope="module")
def params(step) -> Params:
    return tiny.init(step.model)


def corpus(rows: int = ROWS, tokenizer=None) -> Corpus:
    heldout = {"made": SyntheticHeldOut(*MADE_BY, rows)}
    return Corpus(SyntheticRows(*MADE_BY), heldout, tokenizer, None)


def score(step, params, held, shape, batch_size, rows=0) -> Score:
    mesh = tiny.mesh(shape)
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, state.param_shardings(step.model, mesh))
        return Evaluator(step, held, mesh, batch_size, rows)(placed)["made"]


@pytest.fixture(scope="module")
def expected(step, params) -> tuple[float, int, int]:
    """(nats, targets, bytes) over all rows at once, from the model's own hidden states."""
    ids = SyntheticHeldOut(*MADE_BY, ROWS).rows(np.arange(ROWS))
    inputs = read_rows(jnp.asarray(ids), BOS_ID, PAD_ID)
    hidden = jax.jit(step.model.hidden, compiler_options=tiny.FAST)(
        params, inputs.tokens, inputs.segments, inputs.positions
    )
    nll_BT = loss.token_loss(hidden, *step.model.head(params), inputs.targets, 100).nll_BT
    counted = ids[:, 1:][ids[:, 1:] > BOS_ID].astype(int)
    return float((nll_BT * inputs.weights).sum()), len(counted), int(counted.sum())


@pytest.mark.parametrize(
    ("shape", "batch_size"), [((1, 1, 1), ROWS), ((1, 1, 1), 4), ((2, 2, 2), 8)]
)
def test_each_target_counts_once(step, params, expected, shape, batch_size):
    """Batches that the rows do not fill are filled with padding, which weighs nothing."""
    found = score(step, params, corpus(tokenizer=Pieces()), shape, batch_size)
    nats, targets, text_bytes = expected
    assert found.targets == targets
    assert math.isclose(found.loss, nats / targets, rel_tol=1e-5)
    assert math.isclose(found.bits_per_byte, nats / math.log(2) / text_bytes, rel_tol=1e-5)
    assert math.isclose(found.perplexity, math.exp(found.loss))


def test_rows_are_at_most_as_many_as_asked(step, params):
    few, all_of_few = (
        score(step, params, corpus(n), (1, 1, 1), 4, rows) for n, rows in ((ROWS, 3), (3, 0))
    )
    assert few[:1] == all_of_few[:1] and few.targets == all_of_few.targets


def test_no_more_rows_at_once_than_in_a_microbatch(step, params):
    """What fits into memory in training must do so in evaluation."""
    at_once = set()

    class Watched(SyntheticHeldOut):
        def rows(self, positions: np.ndarray) -> np.ndarray:
            at_once.add(len(positions))
            return super().rows(positions)

    held = replace(corpus(), heldout={"made": Watched(*MADE_BY, ROWS)})
    found = score(replace(step, microbatches=2), params, held, (1, 1, 1), 8)
    assert at_once == {4}
    assert found.targets == score(step, params, corpus(), (1, 1, 1), 8).targets


def test_synthetic_rows_have_no_bits_per_byte(step, params):
    found = score(step, params, corpus(), (1, 1, 1), ROWS)
    assert found.bits_per_byte is None
    assert as_metrics({"made": found}) == {"heldout/made/loss": found.loss}


def test_a_loss_beyond_what_exp_can_hold_is_shown():
    assert table({"book": Score(800.0, 1.5, 10)}).splitlines()[1].split()[:3] == [
        "book",
        "800.0000",
        "inf",
    ]


def test_scores_as_text_and_as_metrics():
    scores = {"book": Score(2.0, 1.5, 12_345), "code": Score(1.0, 0.75, 10)}
    lines = table(scores).splitlines()
    assert lines[0].split() == ["type", "loss", "perplexity", "bits/byte", "targets"]
    assert lines[1].split() == ["book", "2.0000", "7.39", "1.5000", "12,345"]
    assert as_metrics(scores) == {
        "heldout/book/loss": 2.0,
        "heldout/book/bits_per_byte": 1.5,
        "heldout/code/loss": 1.0,
        "heldout/code/bits_per_byte": 0.75,
    }
