"""What the optimizers know of a parameter holds for the model's own."""

import math
from dataclasses import replace

import pytest

from jaxlm import models
from jaxlm.models import BLOCKS
from jaxlm.optim.masks import decays, hidden_matrix, input_dims, stacked
from jaxlm.optim.paths import flat
from tests.tiny import MODEL


@pytest.mark.parametrize("tied", [False, True])
def test_decay_leaves_exactly_norms_and_embeddings_alone(tied):
    model = models.build(replace(MODEL, tied_embeddings=tied)).abstract()
    kept = {"/".join(path) for path in flat(model) if not decays(path)}
    assert kept == {
        "embedding/table",
        "norm/scale",
        "blocks/attention_norm/scale",
        "blocks/mlp_norm/scale",
        "blocks/attention/query_norm/scale",
        "blocks/attention/key_norm/scale",
    }


@pytest.mark.parametrize("block", BLOCKS)
def test_matrices_are_split_where_their_input_ends(block):
    """One side of each is the width of the residual stream."""
    cfg = replace(MODEL, block=block, d_model=40, head_dim=4)
    for path, axes in flat(models.build(cfg).axes()).items():
        assert stacked(path) == (axes[0] == "layers")
        shape = flat(models.build(cfg).abstract())[path].shape[stacked(path) :]
        split = input_dims(path)
        if axes[-1] in ("norm", "head_dim") and len(shape) == 1:
            assert split == 0
        else:
            assert cfg.d_model in (math.prod(shape[:split]), math.prod(shape[split:]))
            assert hidden_matrix(path) == stacked(path)
