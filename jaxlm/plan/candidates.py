"""Every way to lay a config out on a target, with an estimate of each: what a search compiles from.

The global batch, the model and the kernels are the config's own; a layout is a mesh, the rows that
a device takes at once, and what the backward pass recomputes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from jaxlm import loss
from jaxlm import mesh as mesh_lib
from jaxlm.config import Config, MeshConfig
from jaxlm.models.remat import REMAT
from jaxlm.plan import estimate, minimum
from jaxlm.plan.roofline import Roofline, roofline
from jaxlm.plan.target import Target
from jaxlm.schema import ConfigError

POLICIES = tuple(REMAT)
"""Lightest first: each recomputes no less than the one before, and saves no more."""

TPU_TENSOR = 8
"""Ways of tensor parallelism in a TPU slice, at most; of GPUs, those of a node."""


@dataclass(frozen=True)
class Candidate:
    """A layout, estimated."""

    cfg: Config
    memory_bytes: float
    roofline: Roofline

    @property
    def rank_s(self) -> float:
        """Seconds of a step, to sort candidates by."""
        return self.roofline.rank_s

    def overrides(self) -> list[str]:
        """What makes the config one of this layout, for the command line."""
        mesh, model, train = self.cfg.mesh, self.cfg.model, self.cfg.train
        values = {
            "mesh.data": mesh.data,
            "mesh.fsdp": mesh.fsdp,
            "mesh.tensor": mesh.tensor,
            "train.rows_per_device": train.rows_per_device,
            "model.remat": model.remat,
        }
        return [f"--config.{name}={value}" for name, value in values.items()]

    def needs_less(self, other: "Candidate") -> bool:
        """Whether it can be told to take no more memory than another one, without a compiler."""
        mine, its = self.cfg, other.cfg
        rows = (mine.train.rows_per_device or 0) <= (its.train.rows_per_device or 0)
        stronger = POLICIES.index(mine.model.remat) >= POLICIES.index(its.model.remat)
        return mine.mesh == its.mesh and rows and stronger


def candidates(cfg: Config, target: Target) -> list[Candidate]:
    """All layouts that the shapes allow, fastest first by the estimate.

    Raises `ConfigError` if there is none.
    """
    carried = estimate.state(cfg)
    found = [_estimated(layout, target, carried) for layout in layouts(cfg, target)]
    if not found:
        raise ConfigError(
            f"no mesh of {target.size} devices splits config.train.batch_size="
            f"{cfg.train.batch_size} and the model's dimensions; change the batch or the target"
        )
    return sorted(found, key=lambda c: c.rank_s)


def layouts(cfg: Config, target: Target) -> Iterator[Config]:
    """The config in each layout that the shapes allow."""
    for mesh in meshes(cfg, target):
        for rows in divisors(cfg.train.batch_size // (mesh.data * mesh.fsdp)):
            train = replace(cfg.train, rows_per_device=rows)
            for remat in POLICIES:
                if remat == "none" and cfg.model.offload_activations:
                    continue  # it is not known what to move
                model = replace(cfg.model, remat=remat)
                yield replace(cfg, mesh=mesh, train=train, model=model)


def meshes(cfg: Config, target: Target) -> Iterator[MeshConfig]:
    """Meshes of all devices of a target that split the batch and the model."""
    most = TPU_TENSOR if target.chip.platform == "tpu" else target.shape[1]
    for tensor in divisors(math.gcd(target.size // target.slices, most)):
        for fsdp in divisors(target.size // target.slices // tensor):
            mesh = MeshConfig(target.size // fsdp // tensor, fsdp, tensor)
            if cfg.train.batch_size % (mesh.data * fsdp) == 0 and _splits(cfg, asdict(mesh)):
                yield mesh


def divisors(n: int) -> Sequence[int]:
    """All of them, ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]


def _splits(cfg: Config, mesh_shape: dict[str, int]) -> bool:
    m = cfg.model
    sizes = {
        "embed": m.d_model,
        "table_embed": m.d_model,
        "heads": m.n_heads,
        "kv_heads": m.n_kv_heads,
        "mlp": m.d_ff,
        "vocab": m.padded_vocab,
    }
    try:
        mesh_lib.spec(mesh_shape, tuple(sizes), tuple(sizes.values()))
        loss.check_blocks(cfg.loss.vocab_blocks, m.padded_vocab, mesh_shape["tensor"])
    except ConfigError:
        return False
    return True


def _estimated(cfg: Config, target: Target, carried: estimate.State) -> Candidate:
    mesh_shape = asdict(cfg.mesh)
    least = minimum.expected(cfg, mesh_shape)
    return Candidate(
        cfg=cfg,
        memory_bytes=estimate.memory(cfg, mesh_shape, carried),
        roofline=roofline(
            target,
            mesh_shape,
            flops=least.flops,
            float32_flops=least.flops * (cfg.model.compute_dtype == "float32"),
            hbm_bytes=estimate.hbm_bytes(cfg, mesh_shape, carried),
            moves=least.moves,
        ),
    )
