"""What a layout takes, by formula instead of by compiler: to sort many candidates in a second.

A compiler's plan of memory differs from it by tens of percent: it ranks, it does not judge. Bytes
are of one device; `tokens` are those of a device in a microbatch.
"""

import math
from typing import NamedTuple

import jax
from jax import numpy as jnp

from jaxlm import models, optim
from jaxlm.config import Config, ModelConfig
from jaxlm.ops.attention import ATTENTION
from jaxlm.plan import minimum


class State(NamedTuple):
    """Bytes of what a run carries from step to step, all devices together, without replicas."""

    params: float
    optimizer: float


def state(cfg: Config) -> State:
    """Of parameters in float32, and of the optimizer's own."""
    abstract = models.build(cfg.model, next(iter(ATTENTION))).abstract()
    moments = jax.eval_shape(optim.build(cfg.optim).init, abstract)
    return State(_bytes(abstract), _bytes(moments))


def memory(cfg: Config, mesh_shape: dict[str, int], carried: State) -> float:
    """Bytes of a device at the peak of a step."""
    m, tensor, width = cfg.model, mesh_shape["tensor"], jnp.dtype(cfg.model.compute_dtype).itemsize
    shards = mesh_shape["fsdp"] * tensor
    tokens = _rows(cfg, mesh_shape) * cfg.data.seq_len
    optimizer = 0.0 if cfg.optim.offload else carried.optimizer
    gradients = carried.params  # float32, as they are summed
    held = (carried.params + optimizer + gradients) / shards
    copy = carried.params / 4 * width / shards if width == 2 else 0.0
    saved = 0.0 if m.offload_activations else m.n_layers * saved_bytes(cfg, tokens, tensor)
    one_layer = _layer_params(m) * width / tensor * 2  # gathered, and its gradient
    working = every_value(cfg, tokens, tensor) + one_layer
    logits = tokens * m.padded_vocab / tensor * 4 / cfg.loss.vocab_blocks
    head = m.d_model * m.padded_vocab * width / tensor
    return held + copy + saved + max(working, logits + head)


def saved_bytes(cfg: Config, tokens: float, tensor: int) -> float:
    """Bytes that one layer leaves for the backward pass, by the remat policy."""
    m, width = cfg.model, jnp.dtype(cfg.model.compute_dtype).itemsize
    residual = tokens * m.d_model * width / tensor
    attention = tokens * m.n_heads * (m.head_size * width + 4) / tensor
    match m.remat:
        case "full":
            return residual
        case "attention":
            return residual + attention
        case "dots":
            heads = (m.n_heads + 2 * m.n_kv_heads) * m.head_size
            products = tokens * (heads + 2 * m.d_ff) * width / tensor
            return 3 * residual + attention + products
    return every_value(cfg, tokens, tensor)


def every_value(cfg: Config, tokens: float, tensor: int) -> float:
    """Bytes of all that a layer computes on its way forward."""
    m, width = cfg.model, jnp.dtype(cfg.model.compute_dtype).itemsize
    residuals = 6 * m.d_model / tensor + 2 * m.d_model  # two of them gathered along the sequence
    heads = (3 * m.n_heads + 4 * m.n_kv_heads) * m.head_size / tensor
    values = tokens * width * (residuals + heads + 4 * m.d_ff / tensor)
    if m.attention in ("reference", "cpu"):  # scores of all pairs, in float32
        values += tokens * cfg.data.seq_len * m.n_heads / tensor * (4 + width)
    return values


def hbm_bytes(cfg: Config, mesh_shape: dict[str, int], carried: State) -> float:
    """Bytes that a device reads and writes of its memory in a step: weights, values, state."""
    m, tensor, width = cfg.model, mesh_shape["tensor"], jnp.dtype(cfg.model.compute_dtype).itemsize
    rows = _rows(cfg, mesh_shape)
    tokens = rows * cfg.data.seq_len
    microbatches = cfg.train.batch_size / (mesh_shape["data"] * mesh_shape["fsdp"] * rows)
    passes = 3 if m.remat == "none" else 4
    weights = passes * m.n_layers * _layer_params(m) * width / tensor
    values = 2 * passes * m.n_layers * every_value(cfg, tokens, tensor)
    logits = 3 * tokens * m.padded_vocab / tensor * 4
    shards = mesh_shape["fsdp"] * tensor
    update = 2 * (carried.params + carried.optimizer) / shards
    return microbatches * (weights + values + logits) + update


def _rows(cfg: Config, mesh_shape: dict[str, int]) -> float:
    """That a device takes at once."""
    share = cfg.train.batch_size / (mesh_shape["data"] * mesh_shape["fsdp"])
    return cfg.train.rows_per_device or share


def _layer_params(m: ModelConfig) -> float:
    return sum(minimum.layer_products(m).values())


def _bytes(tree: object) -> float:
    return float(sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree)))
