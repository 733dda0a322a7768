"""A model that compiles in seconds and whose dimensions every mesh of 8 devices can split."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxlm import mesh as mesh_lib
from jaxlm import models, optim
from jaxlm.config import LossConfig, MeshConfig, ModelConfig, OptimConfig
from jaxlm.data.synthetic import BOS_ID, PAD_ID
from jaxlm.models.transformer import ModelDef, Params
from jaxlm.step import StepDef

MODEL = ModelConfig(
    vocab_size=100,  # padded to 128
    d_model=32,
    n_layers=2,
    n_heads=8,
    n_kv_heads=4,  # of 8 tensor shards: replicated
    d_ff=48,
    qk_norm=True,
    compute_dtype="float32",
)

B, T = 8, 16

MESHES = ((1, 1, 1), (1, 8, 1), (2, 2, 2), (1, 1, 8))
"""(data, fsdp, tensor)."""


FAST: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiler options for programs that are run once: half the time to compile."""


def mesh(shape: tuple[int, int, int]) -> Mesh:
    """A mesh of as many of the fake devices as it needs."""
    return mesh_lib.make(MeshConfig(*shape), jax.devices()[: int(np.prod(shape))])


def step_def(
    model: ModelConfig = MODEL,
    *,
    loss: LossConfig = LossConfig(),  # noqa: B008 (frozen)
    clip_norm: float = 1.0,
    dropout: bool = False,
    microbatches: int = 1,
) -> StepDef:
    """A step of AdamW."""
    return StepDef(
        model=models.build(model),
        optimizer=optim.build(OptimConfig()),
        loss=loss,
        clip_norm=clip_norm,
        seed=0,
        dropout=dropout,
        microbatches=microbatches,
        bos_id=BOS_ID,
        pad_id=PAD_ID,
    )


def init(model: ModelDef) -> Params:
    """Initial parameters, on the host."""
    return jax.device_get(jax.jit(model.init, compiler_options=FAST)(jax.random.key(0)))


def ids(rows: int = B, seq_len: int = T) -> np.ndarray:
    """uint16[rows, seq_len + 1]: short documents, and more padding the further down the row is."""
    random = np.random.default_rng(0)
    found = random.integers(2, MODEL.vocab_size, (rows, seq_len + 1)).astype(np.uint16)
    found[random.random(found.shape) < 0.15] = BOS_ID
    for i, row in enumerate(found):
        row[seq_len + 1 - i * seq_len // rows :] = PAD_ID
    return found


def assert_trees_close(found: Any, expected: Any, tolerance: float) -> None:
    """Each leaf to within `tolerance` of its own norm."""
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(expected)
    ]
    leaves = zip(names, jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for name, a, b in leaves:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert error < tolerance, f"{name}: off by {error:.2e} of its norm"


def assert_trees_equal(found: Any, expected: Any) -> None:
    """Each leaf bit by bit, and of the same type."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
