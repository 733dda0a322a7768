"""What the backward pass finds saved of a layer, and where; the rest it computes again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.ad_checkpoint import checkpoint_name

from jaxlm.config import ModelConfig
from jaxlm.models.layers import scanned
from jaxlm.ops.attention import LSE, OUT
from jaxlm.schema import ConfigError

RESIDUAL = "residual"
"""Name of what enters a layer: without offload it is saved in any case, as the loop's carry."""


class Remat(NamedTuple):
    """A policy, of a layer that has been run."""

    products: bool
    """Whether the results of products with weights are saved."""
    names: tuple[str, ...]
    """Values that are saved by name."""
    recomputes: tuple[str, ...]
    """Weights whose products are computed twice, by their place in a layer's parameters."""
    recomputes_attention: bool
    """Whether the attention kernel runs forward twice."""


ALL_BUT_LAST = (
    "attention/query",
    "attention/key",
    "attention/value",
    "attention/out",
    "mlp/gate",
    "mlp/up",
)
"""The last product of a layer, `mlp/down`, goes into the next layer's residual and nowhere else."""

REMAT: dict[str, Remat | None] = {
    "none": None,
    "dots": Remat(True, (OUT, LSE), (), False),
    "attention": Remat(False, (OUT, LSE), ALL_BUT_LAST, False),
    "full": Remat(False, (), ALL_BUT_LAST, True),
}
"""By `config.model.remat`; None saves all that the backward pass uses."""


def check(cfg: ModelConfig) -> None:
    """`ConfigError` where activations are to be offloaded and none are chosen."""
    if cfg.offload_activations and REMAT[cfg.remat] is None:
        raise ConfigError(
            f"config.model.offload_activations=True: with remat={cfg.remat!r} it is the compiler "
            'that decides what is saved, and nothing can be moved; use remat="dots", "attention" '
            'or "full"'
        )


def rematerialized[F: Callable](layer: F, cfg: ModelConfig) -> F:
    """The function (x, ...) of a layer, for a backward pass that saves as the config says.

    Saved values that wait in host memory are copied there while the next layer is computed, and
    back when the backward pass comes to their layer.
    """
    policy = REMAT[cfg.remat]
    if policy is None:
        return layer

    def named(x_BTD: jax.Array, *rest: Any) -> Any:
        return layer(checkpoint_name(x_BTD, RESIDUAL), *rest)

    # A scan keeps the two computations of a layer apart by itself; unrolled, a barrier must.
    prevent_cse = not scanned(cfg)
    saves = _offloaded(policy) if cfg.offload_activations else _saved(policy)
    return jax.checkpoint(named, policy=saves, prevent_cse=prevent_cse)  # pyright: ignore[reportReturnType]


def _saved(policy: Remat) -> Callable[..., Any]:
    by_name = jax.checkpoint_policies.save_only_these_names(*policy.names)
    if not policy.products:
        return by_name
    products = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint_policies.save_from_both_policies(products, by_name)


def _offloaded(policy: Remat) -> Callable[..., Any]:
    by_name = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[RESIDUAL, *policy.names],
        offload_src="device",
        offload_dst="pinned_host",
    )
    if not policy.products:
        return by_name
    products = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    # A value with a name is no product, and a product has none.
    return lambda primitive, *avals, **params: (by_name if "name" in params else products)(
        primitive, *avals, **params
    )
