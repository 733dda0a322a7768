"""The configuration of a training run: one frozen dataclass a section, every field documented.

Durations are strings with a unit, "300 steps", "4e9 tokens", "1200 rows" (sequences) or "90 %" (of
the run); the clock of a run counts rows, and `Config.rows` converts. No JAX here.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from jaxlm import schema as _schema
from jaxlm import storage
from jaxlm.data.cache import CacheConfig
from jaxlm.safety import CheckpointConfig, CorruptionConfig, GuardConfig, WatchConfig
from jaxlm.schema import ConfigError, fixed, free, recorded, section

VOCAB_MULTIPLE = 128
"""Vocabulary rows are padded to a multiple of this, so that every mesh can split them."""


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer."""

    block: str = fixed("transformer")
    """Kind of layer: a key of `jaxlm.models.BLOCKS`."""
    vocab_size: int = fixed(32_000)
    """True vocabulary of the tokenizer."""
    d_model: int = fixed(512)
    """Width of the residual stream."""
    n_layers: int = fixed(8)
    """Number of layers."""
    n_heads: int = fixed(8)
    """Query heads."""
    n_kv_heads: int = fixed(4)
    """Key and value heads; divides `n_heads`."""
    head_dim: int | None = fixed(None)
    """Width of a head; None is `d_model / n_heads`."""
    d_ff: int = fixed(1408)
    """Width of the MLP's hidden layer."""
    rope_theta: float = fixed(500_000.0)
    """Base of the rotary embedding's wavelengths."""
    norm_eps: float = fixed(1e-5)
    """Added to the mean square in RMSNorm."""
    qk_norm: bool = fixed(False)
    """RMSNorm on queries and keys, a head at a time."""
    tied_embeddings: bool = fixed(False)
    """The output projection is the transposed input table."""
    dropout: tuple[tuple[str, float], ...] = recorded(())
    """Residual dropout as (from, rate) phases: (("0 rows", 0.1), ("900 steps", 0.0))."""
    compute_dtype: Literal["bfloat16", "float32"] = recorded("bfloat16")
    """Type of matrix products and activations; parameters, softmax, norms, loss are float32 (on a
    CPU the shares of the softmax and of the loss are kept in this type, and their sums float32)."""
    layers: Literal["auto", "scan", "unroll"] = recorded("auto")
    """One compiled layer run in a loop, or each layer compiled: longer compile, on a CPU faster
    steps; auto is unroll on a CPU, scan elsewhere."""
    attention: str = recorded("auto")
    """Kernel: a key of `jaxlm.ops.attention.ATTENTION`; auto is the fastest for the hardware."""
    remat: Literal["none", "dots", "attention", "full"] = recorded("none")
    """What the backward pass recomputes of a layer: nothing, all but matrix products and attention,
    all but attention, all."""
    offload_activations: bool = recorded(False)
    """What `remat` saves of the layers waits in host memory for the backward pass; not with none,
    where the compiler decides what is saved."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_ff"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}"
            )
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model={self.d_model} is not a multiple of n_heads={self.n_heads}; set head_dim"
            )
        if self.head_size % 2 or self.head_size < 2:
            raise ValueError(
                f"head_dim={self.head_size}: must be even for rotary embeddings, at least 2"
            )
        if self.norm_eps <= 0 or self.rope_theta <= 0:
            raise ValueError(
                f"norm_eps={self.norm_eps}, rope_theta={self.rope_theta}: must be above 0"
            )
        for start, rate in self.dropout:
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"dropout rate {rate} from {start!r}: must be in [0, 1)")

    @property
    def head_size(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    @property
    def padded_vocab(self) -> int:
        """Rows of the embedding table and columns of the head."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one mixture of types of text."""

    weights: tuple[tuple[str, float], ...] = fixed(())
    """(type, share of the tokens) pairs, one for each type of the corpus; shares are relative, 0
    leaves a type out."""
    until: str | None = fixed(None)
    """Where the stage ends, for example "90 %" or "900 steps", rounded up to whole blocks of
    `block_rows`; None, for the last stage, is the end of training."""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.weights]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"weights={self.weights}: {name!r} has {names.count(name)}; give it one"
                )


@dataclass(frozen=True)
class DataConfig:
    """Where rows come from and in which order."""

    source: Literal["shards", "synthetic"] = fixed("shards")
    """Tokenized shards, or rows made up by a formula (no files needed)."""
    manifest: str = free("")
    """Path of `manifest.json`, relative to the current directory, or its gs:// or s3:// URL. Its
    content is fixed."""
    seq_len: int = fixed(2048)
    """Targets in a row; a multiple of the corpus's `chunk_tokens`."""
    seed: int = fixed(0)
    """Decides the order of rows."""
    mixture: tuple[Stage, ...] = fixed(())
    """Stages of (weights by type, until); empty takes the mixture that the corpus was made for, or,
    if it was made for none, each source by its size."""
    block_rows: int = fixed(100)
    """Rows of a mixture block: each has the sources' shares of it, rounded up or down."""
    shuffle_window: int = fixed(64 * 2**20)
    """Bytes within which rows are shuffled, after the shards are; bounds what a cache must hold."""
    max_epochs: float | None = recorded(None)
    """A source is gone through no more often than this, at least 1; the other sources of its type
    give the rest, and then the other types. None is the corpus's own limit."""
    mixture_tolerance: float | None = recorded(None)
    """A run whose planned share of a type is further off than this, from 0 to 1, is refused. What
    it really draws may be further off where it ends within a block: that is told, not refused. None
    is the corpus's own tolerance."""

    def __post_init__(self) -> None:
        if storage.is_url(self.manifest):
            storage.check(self.manifest)
        for name in ("seq_len", "block_rows", "shuffle_window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.max_epochs is not None and self.max_epochs < 1:
            raise ValueError(f"max_epochs={self.max_epochs}: must be at least 1")
        if self.mixture_tolerance is not None and not 0 <= self.mixture_tolerance <= 1:
            raise ValueError(f"mixture_tolerance={self.mixture_tolerance}: must be from 0 to 1")
        if self.block_rows > 1_000_000:
            raise ValueError(f"block_rows={self.block_rows}: must be at most 1000000")


@dataclass(frozen=True)
class LossConfig:
    """Cross entropy."""

    z_loss: float = recorded(0.0)
    """Weight of the squared log-normalizer, which keeps logits from drifting; 1e-4 is usual."""
    vocab_blocks: int = recorded(1)
    """1 forms the logits whole; more computes them in so many blocks, never whole in memory."""

    def __post_init__(self) -> None:
        if self.z_loss < 0:
            raise ValueError(f"z_loss={self.z_loss}: must be at least 0")
        if self.vocab_blocks < 1:
            raise ValueError(f"vocab_blocks={self.vocab_blocks}: must be at least 1")


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning rate."""

    name: str = fixed("adamw")
    """A key of `jaxlm.optim.OPTIMIZERS`. Bytes of state a parameter, and with a bfloat16 first
    moment: adamw 8, 6; adafactor 4, 2, and with `b1` = 0 next to none; muon, for the matrices of
    the layers, 4, 2, and adamw's for the rest."""
    lr: float = recorded(3e-4)
    """Peak learning rate."""
    lr_reference_batch_tokens: float | None = recorded(None)
    """If set, `lr` holds for this batch size in tokens and is scaled by the square root of ours."""
    schedule: str = recorded("cosine")
    """A key of `jaxlm.optim.SCHEDULES`: cosine, wsd (warm-up, stable, decay) or constant."""
    warmup: str = recorded("0 steps")
    """Length of the linear warm-up."""
    decay: str = recorded("0 steps")
    """Length of the decay at the end of `wsd`; no other schedule takes one."""
    final_lr: float = recorded(0.1)
    """Learning rate at the last step, as a share of the peak."""
    b1: float = recorded(0.9)
    """Decay of the first moment; Muon's momentum, of which 0.95 is usual. Adafactor keeps no first
    moment where it is 0; a run of it cannot change to 0 or from it."""
    b2: float = recorded(0.95)
    """Decay of the second moment; of Adafactor, which begins with less, the largest."""
    eps: float = recorded(1e-8)
    """Added to the root of AdamW's second moment."""
    weight_decay: float = recorded(0.1)
    """Decoupled decay, not on norms and embeddings."""
    clip_norm: float = recorded(1.0)
    """Gradients are scaled down to this global norm."""
    moment_dtype: Literal["float32", "bfloat16"] = fixed("float32")
    """Type in which the first moment is kept; the arithmetic is float32."""
    offload: bool = recorded(False)
    """The optimizer's state lies in host memory, and passes through the device layer by layer."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.clip_norm <= 0 or self.eps <= 0:
            raise ValueError(
                f"lr={self.lr}, eps={self.eps}, clip_norm={self.clip_norm}: must be above 0"
            )
        reference = self.lr_reference_batch_tokens
        if reference is not None and reference <= 0:
            raise ValueError(f"lr_reference_batch_tokens={reference}: must be above 0, or None")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay={self.weight_decay}: must be at least 0")
        if not (0 <= self.b1 < 1 and 0 <= self.b2 < 1):
            raise ValueError(f"b1={self.b1}, b2={self.b2}: must be in [0, 1)")
        if not 0 <= self.final_lr <= 1:
            raise ValueError(f"final_lr={self.final_lr}: a share of the peak, must be in [0, 1]")


@dataclass(frozen=True)
class TrainConfig:
    """The run itself."""

    seed: int = fixed(0)
    """Decides initial parameters and dropout."""
    batch_size: int = recorded(8)
    """Rows (sequences) a step, over all devices."""
    rows_per_device: int | None = recorded(None)
    """Rows a device takes at once; fewer than its share means accumulation. None is its share."""
    end: str = recorded("100 steps")
    """Length of the run; a whole number of batches."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # more bits would be cut off
            raise ValueError(f"seed={self.seed}: must be in [0, 2**32)")


@dataclass(frozen=True)
class MeshConfig:
    """How many devices along each axis; one of them may be -1, the rest of the devices."""

    data: int = recorded(1)
    """Replicas: whole copies of the parameters, each with its rows. Spans slices or nodes."""
    fsdp: int = recorded(-1)
    """Devices that share parameters and optimizer state, each with its own rows."""
    tensor: int = recorded(1)
    """Devices that split heads, MLP and vocabulary of the same rows."""

    def __post_init__(self) -> None:
        sizes = (self.data, self.fsdp, self.tensor)
        if any(n < 1 and n != -1 for n in sizes) or sizes.count(-1) > 1:
            raise ValueError(
                f"data={self.data}, fsdp={self.fsdp}, tensor={self.tensor}: "
                "each at least 1, and at most one of them -1 (the rest of the devices)"
            )


@dataclass(frozen=True)
class EvaluateConfig:
    """Held-out loss during training."""

    every: str | None = free("500 steps")
    """Evaluate each time so much training has passed; at both ends of the run in any case."""
    rows: int = free(256)
    """Held-out rows of each type, at most; 0 takes all of them."""

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError(f"rows={self.rows}: must be at least 0")


@dataclass(frozen=True)
class LogConfig:
    """What is written while training."""

    every: str = free("10 steps")
    """Interval of metrics: a line on the terminal, `metrics.jsonl`, TensorBoard."""
    tensorboard: bool = free(True)
    """Whether to write TensorBoard events."""
    peak_tflops: float | None = free(None)
    """Peak of one device for model FLOPs utilisation; None looks the device up."""

    def __post_init__(self) -> None:
        if self.peak_tflops is not None and self.peak_tflops <= 0:
            raise ValueError(f"peak_tflops={self.peak_tflops}: must be above 0")


@dataclass(frozen=True)
class Config:
    """A whole run."""

    model: ModelConfig = section(ModelConfig)
    """The network."""
    data: DataConfig = section(DataConfig)
    """The rows."""
    cache: CacheConfig = section(CacheConfig)
    """Rows from an object store."""
    loss: LossConfig = section(LossConfig)
    """The objective."""
    optim: OptimConfig = section(OptimConfig)
    """The optimizer."""
    train: TrainConfig = section(TrainConfig)
    """Batch, length, seed."""
    mesh: MeshConfig = section(MeshConfig)
    """The devices."""
    checkpoint: CheckpointConfig = section(CheckpointConfig)
    """Saving."""
    guard: GuardConfig = section(GuardConfig)
    """Steps that go wrong."""
    watch: WatchConfig = section(WatchConfig)
    """Hangs, and machines that go away."""
    corruption: CorruptionConfig = section(CorruptionConfig)
    """Devices that go wrong."""
    evaluate: EvaluateConfig = section(EvaluateConfig)
    """Evaluation."""
    log: LogConfig = section(LogConfig)
    """Metrics."""

    def __post_init__(self) -> None:
        if self.data.source == "shards" and not self.data.manifest:
            raise ConfigError(
                "config.data.manifest is not set: give the path of the corpus's manifest.json, "
                'or set config.data.source="synthetic"'
            )
        if self.train.batch_size < 1:
            raise ConfigError(f"config.train.batch_size={self.train.batch_size}: at least 1")
        if self.end % self.train.batch_size or self.end < 1:
            steps, batch = max(self.end // self.train.batch_size, 1), self.train.batch_size
            raise ConfigError(
                f"config.train.end={self.train.end!r} is {self.end} rows, not a whole number of "
                f'batches of {batch}; use "{steps} steps" or "{steps + 1} steps"'
            )
        warmup, decay = self.rows("optim.warmup"), self.rows("optim.decay")
        if warmup + decay > self.end:
            raise ConfigError(
                f"config.optim.warmup={self.optim.warmup!r} and decay={self.optim.decay!r} take "
                f"{warmup + decay} rows, more than the {self.end} of config.train.end"
            )
        if (decay > 0) != (self.optim.schedule == "wsd"):
            raise ConfigError(
                f"config.optim.decay={self.optim.decay!r}: schedule={self.optim.schedule!r} "
                + (
                    'takes none; set it to "0 steps"'
                    if decay
                    else 'needs one; set it, as "100 steps"'
                )
            )
        for name in (
            "checkpoint.every",
            "checkpoint.snapshot_every",
            "corruption.compare_every",
            "corruption.verify_every",
            "evaluate.every",
            "log.every",
        ):
            if self._field(name) is not None and self.rows(name) < 1:
                raise ConfigError(f"config.{name}={self._field(name)!r}: must be above 0")
        self.dropout_phases()
        if 2 * self.rows("guard.margin") + self.train.batch_size > self.end:
            raise ConfigError(
                f"config.guard.margin={self.guard.margin!r}: with as much before and after it, one "
                f"batch would take all {self.end} rows of the run with it; lower the margin"
            )
        for moment in self.checkpoint.at:
            if self.to_rows(moment, "config.checkpoint.at") > self.end:
                raise ConfigError(
                    f"config.checkpoint.at={moment!r} is after the end of the run, "
                    f"config.train.end={self.train.end!r}, where it is saved anyway; leave it out"
                )

    @property
    def end(self) -> int:
        """Length of the run in rows."""
        return self.rows("train.end")

    @property
    def batch_tokens(self) -> int:
        """Targets a step."""
        return self.train.batch_size * self.data.seq_len

    @property
    def peak_lr(self) -> float:
        """`optim.lr`, scaled by the square root of the batch if a reference batch is given."""
        reference = self.optim.lr_reference_batch_tokens
        scale = 1.0 if reference is None else (self.batch_tokens / reference) ** 0.5
        return self.optim.lr * scale

    def rows(self, name: str) -> int:
        """The duration in the field of this dotted name, in rows."""
        return self.to_rows(self._field(name), f"config.{name}")

    def to_rows(self, duration: str, path: str) -> int:
        """A duration ("300 steps", "4e9 tokens", "1200 rows", "90 %") in rows, rounded down."""
        number, _, unit = (part.strip() for part in duration.partition(" "))
        rows_per_unit = {"steps": self.train.batch_size, "rows": 1}
        try:
            count = int(number) if number.isdecimal() else float(number)
        except ValueError:
            count = -1
        if unit not in (*rows_per_unit, "tokens", "%") or not 0 <= count < 2**62:
            raise ConfigError(
                f"{path}={duration!r}: write a number and steps, tokens, rows or % (of the run), "
                'as "300 steps"'
            )
        if unit == "%" and (path == "config.train.end" or count > 100):
            rule = "the run is all of it" if count > 100 else "it is the length of the run itself"
            raise ConfigError(f'{path}={duration!r}: {rule}; write it as "300 steps"')
        if unit == "%":
            return int(Fraction(str(count)) / 100 * self.end)
        if unit == "tokens":
            return int(count) // self.data.seq_len
        rows = count * rows_per_unit[unit]
        if rows != int(rows):
            raise ConfigError(f"{path}={duration!r}: not a whole number")
        return int(rows)

    def dropout_phases(self) -> tuple[tuple[int, float], ...]:
        """(first row, rate) of each phase of dropout, in order."""
        phases = tuple(
            (self.to_rows(start, "config.model.dropout"), rate)
            for start, rate in self.model.dropout
        )
        if [p[0] for p in phases] != sorted({p[0] for p in phases}):
            raise ConfigError(f"config.model.dropout={self.model.dropout}: starts must increase")
        return phases

    def _field(self, name: str) -> str:
        section_name, field_name = name.split(".")
        return getattr(getattr(self, section_name), field_name)


def schema():
    """The locked ConfigDict with every default, for files in `configs/` to edit."""
    return _schema.schema(Config)


def load(path: str | Path | None, overrides: tuple[str, ...] = ()) -> Config:
    """The config of a file, or the defaults, with `--config.a.b=c` overrides.

    Raises `ConfigError`.
    """
    return _schema.load(Config, path, overrides)
