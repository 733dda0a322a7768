"""Llama-like models from 1B to 70B parameters: what their configs in `configs/` have in common."""

from typing import Any, NamedTuple

from jaxlm.config import VOCAB_MULTIPLE
from jaxlm.config import schema as defaults

type Draft = Any
"""The schema as a config file edits it, a locked ConfigDict; its fields have no types yet."""

SEQ_LEN = 4096
TOKENS_PER_PARAMETER = 20
"""Where loss for compute is best (Hoffmann et al., 2022); a smaller model to be served goes on for
longer: `--config.train.end="1e12 tokens"`."""
WARMUP_STEPS_PER_LAYER, LEAST_WARMUP_STEPS = 75, 2000
"""40 layers take 3,000 steps; deeper models want more, shallow ones no fewer than this."""
LATE = 20
"""The last per cent of a run: the learning rate decays, and dropout is off."""


class Layout(NamedTuple):
    """How a target runs a model."""

    mesh: tuple[int, int, int]
    """(data, fsdp, tensor)."""
    rows: int
    """Rows at once of each of the data x fsdp shards of a batch: `train.rows_per_device`."""
    remat: str = "full"
    """`model.remat`."""
    vocab_blocks: int = 1
    """`loss.vocab_blocks`."""


def shape(
    *, vocab_size: int, d_model: int, n_layers: int, n_heads: int, n_kv_heads: int, d_ff: int
) -> Draft:
    """The schema with a network of this shape: grouped queries, untied tables, bfloat16."""
    c: Draft = defaults()
    c.model.vocab_size = vocab_size
    c.model.d_model = d_model
    c.model.n_layers = n_layers
    c.model.n_heads = n_heads
    c.model.n_kv_heads = n_kv_heads
    c.model.d_ff = d_ff
    c.model.compute_dtype = "bfloat16"
    return c


def pretrain(c: Draft, name: str, batch_tokens: int, lr: float) -> None:
    """Sets data, optimizer and length of a run from scratch. `lr` holds at 4M tokens a batch."""
    c.data.manifest = f"runs/{name}/data/manifest.json"
    c.data.seq_len = SEQ_LEN
    c.train.batch_size = batch_tokens // SEQ_LEN
    steps = -(-TOKENS_PER_PARAMETER * parameters(c) // batch_tokens)
    c.train.end = f"{steps} steps"

    c.optim.lr = lr
    c.optim.lr_reference_batch_tokens = float(2**22)
    c.optim.schedule = "wsd"
    c.optim.warmup = f"{warmup_steps(c.model.n_layers)} steps"
    c.optim.decay = f"{LATE} %"
    c.optim.b2 = 0.95
    c.optim.clip_norm = 1.0
    c.loss.z_loss = 1e-4
    # Early, dropout has kept deep models steady; late, it only costs. Each mask is drawn twice, in
    # the forward pass and in its recomputation, on the slow units: try () where a run is stable.
    c.model.dropout = (("0 steps", 0.1), (f"{100 - LATE} %", 0.0))

    c.checkpoint.at = (f"{100 - LATE} %",)  # from here a run can also go on for longer
    c.checkpoint.keep_every = 10_000
    c.checkpoint.snapshot_keep_every = 10_000
    c.evaluate.every = "1000 steps"


def lay_out(c: Draft, layout: Layout) -> Draft:
    """Sets what depends on the target; returns `c`."""
    c.mesh.data, c.mesh.fsdp, c.mesh.tensor = layout.mesh
    c.train.rows_per_device = layout.rows
    c.model.remat = layout.remat
    c.loss.vocab_blocks = layout.vocab_blocks
    return c


def parameters(c: Draft) -> int:
    """Of the whole network, but for the norms."""
    m = c.model
    attention = 2 * m.d_model * (m.d_model // m.n_heads) * (m.n_heads + m.n_kv_heads)
    vocab = -(-m.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    return m.n_layers * (attention + 3 * m.d_model * m.d_ff) + 2 * vocab * m.d_model


def warmup_steps(n_layers: int) -> int:
    """75 a layer, at least 2,000."""
    return max(LEAST_WARMUP_STEPS, WARMUP_STEPS_PER_LAYER * n_layers)
