"""How each shipped config splits its parameters and activations, as text.

python -m tests.shardings     # writes tests/golden/shardings.txt anew

`4096/fsdp` is a dimension that the mesh axis fsdp splits. Activations are those that the code pins,
by the function that does; weights show how they lie while they are used.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType

from jaxlm import config, models, optim, schema
from jaxlm import mesh as mesh_lib
from jaxlm import step as step_lib
from jaxlm.accumulate import accumulate
from jaxlm.config import Config
from jaxlm.data.synthetic import BOS_ID, PAD_ID
from jaxlm.models.block import Dropout

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/shardings.txt"
ALSO = ("lm_70b:h100:32x8",)
"""Beside the first target of each config: one with a tensor axis."""

PINS = ("jaxlm/mesh.py", "jaxlm/ops/dense.py", "jaxlm/ops/sequence.py")
"""Files that pin on behalf of others."""


def text() -> str:
    """All of it."""
    return "\n".join("\n".join(lines) + "\n" for lines in map(_lines, _names()))


def _names() -> Iterator[str]:
    for path in sorted((ROOT / "configs").glob("*.py"), key=lambda p: (len(p.stem), p.stem)):
        for target in schema.targets(path):
            name = f"{path.stem}:{target}"
            if target == schema.targets(path)[0] or name in ALSO:
                yield name


def _lines(name: str) -> Iterator[str]:
    stem, _, target = name.partition(":")
    cfg = config.load(ROOT / f"configs/{stem}.py:{target}")
    sizes = dict(zip(mesh_lib.AXES, (cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor), strict=True))
    yield f"{stem} on {target}: " + ", ".join(f"{axis} {n}" for axis, n in sizes.items())
    yield "  parameters"
    yield from _parameters(cfg, sizes)
    yield f"  activations of {cfg.train.rows_per_device} rows on each of the data x fsdp shards"
    yield from _activations(cfg, sizes)


def _parameters(cfg: Config, sizes: dict[str, int]) -> Iterator[str]:
    model = models.build(cfg.model)
    axes = jax.tree.leaves(model.axes(), is_leaf=lambda x: isinstance(x, tuple))
    leaves = jax.tree_util.tree_leaves_with_path(model.abstract())
    for own, (path, leaf) in zip(axes, leaves, strict=True):
        where = mesh_lib.spec(sizes, own, leaf.shape)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        yield f"    {name:<32} {_show(leaf, where)}"


def _activations(cfg: Config, sizes: dict[str, int]) -> Iterator[str]:
    """What is pinned while the loss of a batch is traced, each once, in order."""
    step = step_lib.StepDef(
        model=models.build(cfg.model),
        optimizer=optim.build(cfg.optim),
        loss=cfg.loss,
        clip_norm=1.0,
        seed=0,
        dropout=True,
        microbatches=1,
        bos_id=BOS_ID,
        pad_id=PAD_ID,
    )
    rows = sizes["data"] * sizes["fsdp"] * (cfg.train.rows_per_device or 1)
    ids = jax.ShapeDtypeStruct((rows, cfg.data.seq_len + 1), np.uint16)
    positions = jax.ShapeDtypeStruct((rows, 2), np.uint32)
    rate = jax.ShapeDtypeStruct((), np.float32)
    mesh = AbstractMesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)
    )
    seen: dict[str, None] = {}
    real = jax.lax.with_sharding_constraint

    def record(x: jax.Array, where: Any) -> jax.Array:
        seen.setdefault(f"    {_who():<32} {_show(x, where)}")
        return real(x, where)

    def sums(params: Any, ids: Any, positions: Any, rate: Any) -> Any:
        keys = step_lib.row_keys(0, positions)

        def own(shared: Any, part: Any) -> Any:
            return step_lib.objective(shared[0], step, part[0], Dropout(part[1], shared[1]))[1]

        return accumulate(own, (params, rate), (ids, keys), 1)

    recorded = mock.patch("jax.lax.with_sharding_constraint", record)
    with jax.sharding.use_abstract_mesh(mesh), recorded:
        jax.eval_shape(sums, step.model.abstract(), ids, positions, rate)
    return iter(seen)


def _who() -> str:
    """The function that asked for the pin: of the trainer, but not one that pins for others."""
    frame = sys._getframe(2)
    pinned_by = ""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if ROOT / "jaxlm" in file.parents:
            name = file.relative_to(ROOT).as_posix()
            if name not in PINS:
                return f"{frame.f_code.co_qualname.removesuffix('.__call__')}{pinned_by}"
            if name != PINS[0]:
                pinned_by = f", {frame.f_code.co_name.lstrip('_')}"
        frame = frame.f_back
    raise AssertionError("nobody pinned it")


def _show(x: Any, where: Any) -> str:
    """`bfloat16[8/data/fsdp, 4096, 4096]`."""
    entries = [*where, *[None] * (len(x.shape) - len(where))]
    dims = (
        "/".join([str(n), *((names,) if isinstance(names, str) else names or ())])
        for n, names in zip(x.shape, entries, strict=True)
    )
    return f"{x.dtype}[{', '.join(dims)}]"


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
