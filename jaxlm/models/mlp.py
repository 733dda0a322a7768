"""The MLP of a layer."""

import jax
from flax import nnx

from jaxlm.config import ModelConfig
from jaxlm.mesh import constrain
from jaxlm.models.linear import Linear
from jaxlm.ops.swiglu import swiglu


class MLP(nnx.Module):
    """down(silu(gate(x)) * up(x)); x [B, T, D]."""

    def __init__(self, cfg: ModelConfig, rngs: nnx.Rngs):
        d, f = cfg.d_model, cfg.d_ff
        self.gate = Linear((d, f), ("embed", "mlp"), rngs)
        self.up = Linear((d, f), ("embed", "mlp"), rngs)
        self.down = Linear((f, d), ("mlp", "embed"), rngs, gain=(2 * cfg.n_layers) ** -0.5)

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """[B, T, D]."""
        h_BTF = swiglu(x_BTD, self.gate, self.up)
        return self.down(constrain(h_BTF, "batch", None, "mlp"))
