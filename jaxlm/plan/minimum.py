"""What a step must compute and move, by formulas written out, to hold a compiled program against.

All figures are of one device and one step. Letters: B rows of a batch, T tokens a row, D width,
H query and N key-value heads of size K, F width of the MLP, V padded vocabulary, L layers; d, f, t
ways of the axes data, fsdp, tensor; m microbatches; w bytes of the compute type. A device works on
the b = B / d f m rows of its fsdp shard in each microbatch, together with its tensor group.

Wire bytes are what a device sends: of an array of S bytes that a group of n gathers or scatters,
(n - 1) / n S; of one that it sums, twice that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from jax import numpy as jnp

from jaxlm.config import Config, ModelConfig
from jaxlm.metrics import flops_per_token, matrix_params
from jaxlm.models.remat import REMAT
from jaxlm.ops.attention.kernel import pairs
from jaxlm.optim.newton_schulz import STEPS
from jaxlm.schema import ConfigError


class Term(NamedTuple):
    """One product, however often it is executed in a step."""

    name: str
    when: str
    """forward, backward, recomputed or update."""
    flops: float


class Move(NamedTuple):
    """One thing that is moved, however often in a step."""

    name: str
    kind: str
    """Of collective; by formula all-gather, reduce-scatter, all-reduce or all-to-all."""
    axes: tuple[str, ...]
    bytes: float
    """That a device sends."""
    between_slices: bool = False
    """Counted as it leaves for the other slices: all of it is on the network."""


class Attention(NamedTuple):
    """How a kernel does it: products of the size of the scores, T x T x K a head."""

    forward: int
    backward: int
    block: int | None
    """Side of the blocks of which those above the diagonal are left out, or the largest part of it
    that divides a row; None: all pairs are computed, or those of `parts`."""
    parts: int = 1
    """Blocks that a row of any length is cut into, if it can be."""


ATTENTION: dict[str, Attention] = {
    "reference": Attention(2, 4, None),
    "splash": Attention(2, 7, 512),
    "pallas": Attention(2, 7, 128),
    "cudnn": Attention(2, 5, 128),
    "cpu": Attention(2, 4, None, parts=4),
}
"""By kernel, as in `jaxlm.ops.attention.ATTENTION`."""


@dataclass(frozen=True)
class Expected:
    """The least that a step takes."""

    products: tuple[Term, ...]
    moves: tuple[Move, ...]
    model_flops: float
    """6 a matrix parameter and token, and attention to the half of the pairs that may attend."""
    model_flops_all_pairs: float
    """The same with all T x T pairs, as many publish it."""

    @property
    def flops(self) -> float:
        """Executed."""
        return sum(term.flops for term in self.products)

    def wire(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Bytes by kind of collective and axes."""
        totals: dict[tuple[str, tuple[str, ...]], float] = {}
        for move in self.moves:
            key = (move.kind, move.axes)
            totals[key] = totals.get(key, 0.0) + move.bytes
        return totals


class Sizes(NamedTuple):
    """The letters."""

    d: int
    f: int
    t: int
    m: int
    b: float
    w: int
    tokens: float
    """Of a device's fsdp shard in a step: b T m."""


def expected(cfg: Config, mesh_shape: dict[str, int], attention: str = "auto") -> Expected:
    """The least for a config on a mesh, with the attention kernel that was chosen.

    "auto" is the one that the config names, or else one in blocks of 512.
    """
    d, f, t = (mesh_shape[axis] for axis in ("data", "fsdp", "tensor"))
    share = cfg.train.batch_size / (d * f)
    b = cfg.train.rows_per_device or share
    w = jnp.dtype(cfg.model.compute_dtype).itemsize
    z = Sizes(d, f, t, round(share / b), b, w, share * cfg.data.seq_len)
    name = cfg.model.attention if attention == "auto" else attention
    name = "splash" if name == "auto" else name
    if name not in ATTENTION:
        raise ConfigError(f"attention={name!r}: add what it computes to {__name__}.ATTENTION")
    tokens = z.tokens / t
    half = 6 * cfg.model.n_layers * cfg.data.seq_len * cfg.model.n_heads * cfg.model.head_size
    model = tokens * flops_per_token(cfg.model, cfg.data.seq_len)
    moves = [*_fsdp(cfg, z), *_embedding(cfg, z), *_replicas(cfg, z), *_tensor(cfg, z)]
    moves += _whole_layers(cfg, z)
    return Expected(
        products=tuple(_products(cfg, z, ATTENTION[name])),
        moves=tuple(move for move in moves if move.bytes > 0),
        model_flops=model,
        model_flops_all_pairs=model + tokens * half,
    )


# ---- FLOPs: two a multiply-add -------------------------------------------------------------------


def layer_shapes(c: ModelConfig) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of each product of a layer, by place in its parameters."""
    heads, kv_heads = c.n_heads * c.head_size, c.n_kv_heads * c.head_size
    return {
        "attention/query": (c.d_model, heads),
        "attention/key": (c.d_model, kv_heads),
        "attention/value": (c.d_model, kv_heads),
        "attention/out": (heads, c.d_model),
        "mlp/gate": (c.d_model, c.d_ff),
        "mlp/up": (c.d_model, c.d_ff),
        "mlp/down": (c.d_ff, c.d_model),
    }


def layer_products(c: ModelConfig, tensor: int = 1) -> dict[str, float]:
    """Weights of each product of a layer, by place in its parameters; a device's share of them.

    Where tensor does not divide the key-value heads, every device computes all of them; a compiler
    may share them after all, and move more bytes.
    """
    whole = ("attention/key", "attention/value") if c.n_kv_heads % tensor else ()
    return {
        place: inputs * outputs / (1 if place in whole else tensor)
        for place, (inputs, outputs) in layer_shapes(c).items()
    }


def norm_params(c: ModelConfig) -> int:
    """Scales of the norms, which every device holds whole."""
    return (2 * c.n_layers + 1) * c.d_model + 2 * c.n_layers * c.head_size * c.qk_norm


def _products(cfg: Config, z: Sizes, kernel: Attention) -> Iterator[Term]:
    c, policy = cfg.model, REMAT[cfg.model.remat]
    again = () if policy is None else policy.recomputes
    for name, weights in layer_products(cfg.model, z.t).items():
        forward = 2 * z.tokens * weights * c.n_layers
        yield Term(name, "forward", forward)
        yield Term(name, "backward", 2 * forward)  # by the weights, by the input
        if name in again:
            yield Term(name, "recomputed", forward)
    length = cfg.data.seq_len
    side = gcd(kernel.block, length) if kernel.block else length // gcd(kernel.parts, length)
    seen = pairs(length, side)
    scores = 2 * z.tokens / length * seen * c.n_heads / z.t * c.head_size * c.n_layers
    yield Term("attention", "forward", kernel.forward * scores)
    yield Term("attention", "backward", kernel.backward * scores)
    if policy is not None and policy.recomputes_attention:
        yield Term("attention", "recomputed", kernel.forward * scores)
    head = 2 * z.tokens * c.d_model * c.padded_vocab / z.t
    yield Term("head", "forward", head)
    yield Term("head", "backward", 2 * head)
    if cfg.loss.vocab_blocks > 1:
        yield Term("head", "recomputed", head)
    yield from _update(cfg, z)


def _update(cfg: Config, z: Sizes) -> Iterator[Term]:
    """Products of Newton-Schulz steps: each device of the fsdp axis has whole layers."""
    if cfg.optim.name != "muon":
        return
    layers = -(-cfg.model.n_layers // z.f)
    total = 0.0
    for inputs, outputs in layer_shapes(cfg.model).values():
        short, long = sorted((inputs, outputs))
        total += STEPS * (2 * short * short * long + 2 * short**3 + 2 * short * short * long)
    yield Term("newton-schulz", "update", layers * total / z.t)


# ---- bytes ---------------------------------------------------------------------------------------


def _shared(n: int, size: float, times: float = 1) -> float:
    """What a device sends to gather or to scatter-sum an array of `size` bytes in a group of n."""
    return (n - 1) / n * size * times


def _fsdp(cfg: Config, z: Sizes) -> Iterator[Move]:
    """Weights on their way to the devices, gradients on their way back, in the compute type."""
    c, axis = cfg.model, ("fsdp",)
    layers = c.n_layers * sum(layer_products(cfg.model, z.t).values()) * z.w
    head = c.d_model * c.padded_vocab / z.t * z.w
    passes = 1 if c.remat == "none" else 2
    yield Move("layers, forward", "all-gather", axis, _shared(z.f, layers, z.m))
    yield Move("layers, again", "all-gather", axis, _shared(z.f, layers, z.m * (passes - 1)))
    passes = 2 if cfg.loss.vocab_blocks > 1 else 1
    yield Move("head", "all-gather", axis, _shared(z.f, head, z.m * passes))
    yield Move("gradients of layers", "reduce-scatter", axis, _shared(z.f, layers, z.m))
    yield Move("gradient of head", "reduce-scatter", axis, _shared(z.f, head, z.m))
    norms = 4 * norm_params(cfg.model)
    axes = tuple(a for a, n in (("fsdp", z.f), ("tensor", z.t)) if n > 1)
    yield Move("gradients of norms", "all-reduce", axes, 2 * _shared(z.f * z.t, norms, z.m))


def _embedding(cfg: Config, z: Sizes) -> Iterator[Move]:
    """Ids to whoever holds the table's columns, columns back; the gradient the other way."""
    c, tokens = cfg.model, z.b * cfg.data.seq_len
    there_and_back = 2 * z.m
    part = tokens * c.d_model / z.t * z.w
    ids = tokens * z.f * (2 if c.vocab_size <= 2**16 else 4)  # as the rows come from the host
    yield Move("ids", "all-gather", ("fsdp",), _shared(z.f, ids, z.m))
    yield Move("looked up", "all-to-all", ("fsdp",), _shared(z.f, part, there_and_back))
    if c.tied_embeddings:
        whole = tokens * c.d_model * z.w
        yield Move("looked up", "reduce-scatter", ("tensor",), _shared(z.t, whole, z.m))
        yield Move("gradient of looked up", "all-gather", ("tensor",), _shared(z.t, whole, z.m))
    else:
        yield Move("looked up", "all-to-all", ("tensor",), _shared(z.t, part, there_and_back))


def _replicas(cfg: Config, z: Sizes) -> Iterator[Move]:
    """Gradients in float32, once a step, between devices that hold the same shard."""
    c = cfg.model
    table = 0 if c.tied_embeddings else c.d_model * c.padded_vocab
    shard = (matrix_params(c) + table) / (z.f * z.t) + norm_params(cfg.model)
    yield Move("gradients", "all-reduce", ("data",), 2 * _shared(z.d, 4 * shard))


def _whole_layers(cfg: Config, z: Sizes) -> Iterator[Move]:
    """Momentum on its way to the device that has the whole layer, the update on its way back."""
    if cfg.optim.name == "muon":
        part = (
            cfg.model.n_layers * sum(layer_products(cfg.model, z.t).values()) / z.f * 2
        )  # bfloat16
        yield Move("whole layers", "all-to-all", ("fsdp",), _shared(z.f, part, 2))


def _tensor(cfg: Config, z: Sizes) -> Iterator[Move]:
    """Activations between the sequence-sharded residual and the products."""
    c, axis = cfg.model, ("tensor",)
    whole = z.b * cfg.data.seq_len * c.d_model * z.w
    layers = z.m * c.n_layers
    again = c.remat != "none"
    scattered_again = c.remat in ("attention", "full")
    yield Move("inputs of layers", "all-gather", axis, _shared(z.t, whole, 2 * layers))
    yield Move("gradients of outputs", "all-gather", axis, _shared(z.t, whole, 2 * layers))
    yield Move("inputs, again", "all-gather", axis, _shared(z.t, whole, 2 * layers * again))
    yield Move("outputs of layers", "reduce-scatter", axis, _shared(z.t, whole, 2 * layers))
    yield Move("gradients of inputs", "reduce-scatter", axis, _shared(z.t, whole, 2 * layers))
    yield Move(
        "output, again", "reduce-scatter", axis, _shared(z.t, whole, layers * scattered_again)
    )
    yield Move("input of head", "all-gather", axis, _shared(z.t, whole, z.m))
    yield Move("its gradient", "reduce-scatter", axis, _shared(z.t, whole, z.m))
    sums = 3 * z.b * cfg.data.seq_len * 4  # maximum, sum, the target's logit
    yield Move("loss", "all-reduce", axis, 2 * _shared(z.t, sums, z.m))
    if c.n_kv_heads % z.t:
        kv = 2 * c.d_model * c.n_kv_heads * c.head_size / z.f * z.w
        yield Move("gradients of kv", "all-reduce", axis, 2 * _shared(z.t, kv, layers))
