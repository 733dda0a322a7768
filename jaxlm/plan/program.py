"""The train step of a run, lowered and compiled for devices that need not be there.

It is the very step that `jaxlm train` runs, made by the same functions and compiled with the same
options; only its arguments are shapes instead of arrays.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax import stages
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxlm import compiler, run, state
from jaxlm import mesh as mesh_lib
from jaxlm.config import Config
from jaxlm.data.synthetic import BOS_ID, PAD_ID
from jaxlm.plan import walk
from jaxlm.plan.host import keep_on_host
from jaxlm.plan.log import Log
from jaxlm.plan.memory import Memory, of_compiled, of_refusal
from jaxlm.plan.target import Target
from jaxlm.plan.walk import Counts
from jaxlm.state import TrainState
from jaxlm.step import Controls, StepDef, compile_train_step

FLAGS = 2
"""Wishes that each device carries to the step: save, stop."""

COMPILERS = {"tpu": ("libtpu",), "gpu": ("jax-cuda13-pjrt",)}
"""Packages with the compiler of a platform."""


@dataclass(frozen=True)
class Lowered:
    """A step before it is compiled."""

    step: StepDef
    mesh: Mesh
    state: TrainState
    """Shapes, types and shardings."""
    batch: tuple[jax.ShapeDtypeStruct, Controls]
    """What the step takes besides: rows, and what the host decides."""
    digest: str
    """Of the program, the options and the compiler: the same in every process on every machine."""
    program: stages.Lowered
    log: str


@dataclass(frozen=True)
class Program:
    """A compiled step, or the compiler's refusal."""

    text: str
    """Optimized HLO; empty if it was refused."""
    memory: Memory
    mesh_shape: dict[str, int]
    state: TrainState
    """Shapes, types and shardings."""
    batch: tuple[jax.ShapeDtypeStruct, Controls]
    """What the step takes besides."""
    attention: str
    """The kernel that was chosen."""
    microbatches: int
    digest: str
    versions: dict[str, str]
    """Of the packages that made it."""
    compile_s: float
    log: str
    """What the compiler said on standard error."""
    refusal: str | None = None
    """Why there is no program."""

    @cached_property
    def counts(self) -> Counts | None:
        """What it computes and moves; None if it was refused."""
        return walk.count(self.text, self.mesh_shape) if self.text else None


def lower(cfg: Config, target: Target | Sequence[Any]) -> Lowered:
    """The step of a config for a target, or for given devices; seconds, whatever the size.

    Raises `ConfigError` where mesh, batch or kernel do not fit the target.
    """
    devices = target.devices() if isinstance(target, Target) else list(target)
    mesh = mesh_lib.make(cfg.mesh, devices)
    step, where = run.make_step(cfg, mesh, BOS_ID, PAD_ID)
    abstract = state.abstract(step.model, step.optimizer, where)
    batch = _inputs(cfg, mesh)
    with jax.set_mesh(mesh), _without_locations(), Log("lowering") as log:
        program = compile_train_step(step, mesh, where).lower(abstract, *batch)
    if mesh.devices.flat[0].platform == "gpu":
        keep_on_host(program)
    name = str(target) if isinstance(target, Target) else f"{len(devices)} devices"
    digest = _digest(program, name, mesh.devices.flat[0])
    return Lowered(step, mesh, abstract, batch, digest, program, log.text)


def compile(cfg: Config, target: Target | Sequence[Any]) -> Program:
    """The compiled step; seconds for a GPU, up to minutes for a TPU.

    A program that the compiler refuses because it does not fit is a result, not an error.
    """
    lowered = lower(cfg, target)
    platform = lowered.mesh.devices.flat[0].platform
    start = time.perf_counter()
    text, refusal = "", None
    with Log("compiling") as log:
        try:
            compiled = lowered.program.compile()
        except jax.errors.JaxRuntimeError as e:
            if "RESOURCE_EXHAUSTED" not in str(e):
                raise
            refusal = str(e)
            memory = of_refusal(refusal, lowered.state)
        else:
            text = compiled.as_text() or ""
            memory = of_compiled(compiled, platform)
    seconds = time.perf_counter() - start
    return Program(
        text=text,
        memory=memory,
        mesh_shape=dict(lowered.mesh.shape),
        state=lowered.state,
        batch=lowered.batch,
        attention=lowered.step.model.attention,
        microbatches=lowered.step.microbatches,
        digest=lowered.digest,
        versions=versions(platform),
        compile_s=seconds,
        log=lowered.log + log.text,
        refusal=refusal,
    )


def _inputs(cfg: Config, mesh: Mesh) -> tuple[jax.ShapeDtypeStruct, Controls]:
    """What a step is called with besides its state, as the loop does it."""
    rows = cfg.train.batch_size
    ids = np.uint16 if cfg.model.vocab_size <= 2**16 else np.uint32
    rows_BT1 = jax.ShapeDtypeStruct(
        (rows, cfg.data.seq_len + 1), ids, sharding=mesh_lib.rows_sharding(mesh)
    )
    every_device = NamedSharding(mesh, P(mesh_lib.AXES, None))
    shapes: dict[str, Any] = {
        "lr": jax.ShapeDtypeStruct((), np.float32),
        "dropout": jax.ShapeDtypeStruct((), np.float32),
        "max_loss": jax.ShapeDtypeStruct((), np.float32),
        "max_grad_norm": jax.ShapeDtypeStruct((), np.float32),
        "positions": jax.ShapeDtypeStruct((rows, 2), np.uint32),
        "next_position": jax.ShapeDtypeStruct((2,), np.uint32),
        "flags": jax.ShapeDtypeStruct((mesh.size, FLAGS), np.int32, sharding=every_device),
    }
    return rows_BT1, Controls(**shapes)


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """No files and lines in a lowered program.

    Kernels travel as bytes inside it, and the paths in them would differ from clone to clone.
    """
    before = jax.config.jax_traceback_in_locations_limit
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


def _digest(program: stages.Lowered, target: str, device: Any) -> str:
    parts = {
        "program": program.as_text(),
        "target": target,
        "options": {name: repr(value) for name, value in compiler.options(device).items()},
        "compiler": versions(device.platform),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def versions(platform: str) -> dict[str, str]:
    """Packages that decide what a program for this platform compiles to, and their versions."""
    names = ["jax", "jaxlib", *COMPILERS.get(platform, ())]
    return {name: metadata.version(name) for name in names}
