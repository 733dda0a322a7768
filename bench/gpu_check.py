"""The 1B model's step on one GPU by attention kernel: time, MFU, memory, numbers: `gpu_check.sh`.

Rows are synthetic, so of the trainer's packages it needs JAX, Flax, Optax, NumPy, ml_collections
and tqdm alone. Each kernel runs in a process of its own, whose peak of memory is then its own.
`--small` is for a machine without a GPU: the same way through, over a model of a few layers.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh

from jaxlm import compiler, config, hardware, metrics, models, optim, platforms, state, step
from jaxlm import mesh as mesh_lib
from jaxlm.config import Config
from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticRows
from jaxlm.ops import attention
from jaxlm.plan import memory

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs/lm_1b.py"
ROWS, AT_ONCE, PACKED = 8, 4, 2
"""Rows of a batch, of a microbatch, and of the comparison of kernels."""

ONE_GPU = (
    "data.source=synthetic",
    "mesh.data=1",
    "mesh.fsdp=1",
    f"train.batch_size={ROWS}",
    f"train.rows_per_device={AT_ONCE}",
    "train.end=1000 steps",
    "optim.warmup=100 steps",
)
SMALL = (
    "model.vocab_size=500",
    "model.d_model=64",
    "model.n_layers=2",
    "model.n_heads=4",
    "model.n_kv_heads=2",
    "model.d_ff=128",
    "data.seq_len=128",
)
LEAST_STEPS, MOST_STEPS, COMPARED = 3, 40, 3
LIMIT_S = 150.0
"""For a part on a GPU, compilation included: all of them together have 8 minutes."""


class Times(NamedTuple):
    """Of the steps that were timed."""

    seconds: list[float]
    losses: list[float]
    """Of the first steps, which all kernels are to share."""


def load(small: bool, kernel: str) -> Config:
    """The model on one device, with a kernel."""
    return config.load(CONFIG, (*ONE_GPU, *(SMALL if small else ()), f"model.attention={kernel}"))


def build(cfg: Config, mesh: Mesh) -> tuple[step.StepDef, state.TrainState]:
    """The step, and the shardings of its state, as `jaxlm.run.make_step` makes them.

    That module opens corpora too, with packages that a GPU's image may lack.
    """
    kernel = attention.choose(
        cfg.model.attention, mesh.devices.flat[0], attention.need(cfg.model, cfg.data.seq_len)
    )
    model, optimizer = models.build(cfg.model, kernel), optim.build(cfg.optim)
    made = step.StepDef(
        model=model,
        optimizer=optimizer,
        loss=cfg.loss,
        clip_norm=cfg.optim.clip_norm,
        seed=cfg.train.seed,
        dropout=True,
        microbatches=mesh_lib.microbatches(mesh, cfg.train.batch_size, cfg.train.rows_per_device),
        bos_id=BOS_ID,
        pad_id=PAD_ID,
    )
    return made, state.shardings(model, optimizer, mesh)


def compile_known(lowered: jax.stages.Lowered, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """The program, and the options that this version of XLA does not know, left out."""
    unknown: list[str] = []
    while True:
        try:
            return lowered.compile(compiler_options=options), unknown
        except jax.errors.JaxRuntimeError as e:
            found = re.search(r"No such compile option: '(\w+)'", str(e))
            if found is None:
                raise
            unknown.append(found[1])
            options = {name: value for name, value in options.items() if name not in unknown}


def measure(
    small: bool, kernel: str, seconds: float, deterministic: Path | None = None
) -> dict[str, Any]:
    """Compiles the step with a kernel and runs it for about so many seconds.

    `deterministic`: as in `compiler.options`.
    """
    cfg = load(small, kernel)
    mesh = mesh_lib.make(cfg.mesh, jax.devices()[:1])
    made, where = build(cfg, mesh)
    ids = SyntheticRows(cfg.data.seed, cfg.data.seq_len, cfg.model.vocab_size)
    rows = jax.device_put(ids.rows(np.arange(ROWS)), mesh_lib.rows_sharding(mesh))
    with jax.set_mesh(mesh):
        began = time.perf_counter()
        abstract = state.abstract(made.model, made.optimizer, where)
        lowered = jax.jit(
            lambda s, r, c: step.train_step(made, s, r, c),
            out_shardings=(where, mesh_lib.replicated(mesh)),
            donate_argnums=0,
        ).lower(abstract, rows, _controls(0))
        compiled, unknown = compile_known(
            lowered, compiler.options(jax.devices()[0], deterministic)
        )
        compile_s = time.perf_counter() - began
        first = state.init(made.model, made.optimizer, cfg.train.seed, where)
        after_init = _peak()
        times = run(compiled, first, rows, seconds)
    seconds_a_step = statistics.median(times.seconds)
    chip = hardware.by_kind(jax.devices()[0].device_kind)
    tokens_a_second = cfg.batch_tokens / seconds_a_step
    flops = metrics.flops_per_token(cfg.model, cfg.data.seq_len) * tokens_a_second
    predicted = memory.of_compiled(compiled, jax.devices()[0].platform)
    return {
        "attention": kernel,
        "compile_s": compile_s,
        "unknown_options": unknown,
        "steps": len(times.seconds),
        "step_s": seconds_a_step,
        "tokens_per_s": tokens_a_second,
        "mfu": None if chip is None else flops / (chip.bf16_tflops * 1e12),
        "losses": times.losses,
        "predicted_bytes": predicted.peak,
        "measured_bytes": _peak(),
        "measured_after_init_bytes": after_init,
    }


def run(compiled: Any, first: Any, rows: jax.Array, seconds: float) -> Times:
    """Steps, each awaited; the first is not timed."""
    carried, times, began = first, Times([], []), time.perf_counter()
    for number in range(MOST_STEPS):
        start = time.perf_counter()
        carried, found = compiled(carried, rows, _controls(number))
        loss = float(found.loss)
        jax.block_until_ready(carried)
        if number:
            times.seconds.append(time.perf_counter() - start)
        if number < COMPARED:
            times.losses.append(loss)
        if number >= LEAST_STEPS and time.perf_counter() - began > seconds:
            break
    return times


def _controls(number: int) -> step.Controls:
    positions = number * ROWS + np.arange(ROWS)
    return step.Controls(
        lr=np.float32(1e-4),
        dropout=np.float32(0.1),
        positions=state.split_position(positions),
        next_position=state.split_position(int(positions[-1]) + 1),
        max_loss=np.float32(np.inf),
        max_grad_norm=np.float32(np.inf),
        flags=jnp.zeros((1, 2), jnp.int32),
    )


def _peak() -> int | None:
    """Bytes that the allocator has given out at most; a CPU does not say."""
    found = jax.devices()[0].memory_stats()
    return None if found is None else found["peak_bytes_in_use"]


# ---- numbers -------------------------------------------------------------------------------------


def compare(small: bool) -> dict[str, Any]:
    """Error of each kernel on packed rows, in shares of the norm, of its output and gradients.

    Against the reference in float32; the reference in bfloat16 shows what rounding alone costs.
    """
    cfg = load(small, "auto").model
    seq_len = load(small, "auto").data.seq_len
    ids = SyntheticRows(0, seq_len, cfg.vocab_size).rows(np.arange(PACKED))
    segments = step.read_rows(jnp.asarray(ids), BOS_ID, PAD_ID).segments
    keys = jax.random.split(jax.random.key(0), 4)
    heads = (cfg.n_heads, cfg.n_kv_heads, cfg.n_kv_heads, cfg.n_heads)
    q, k, v, g = (
        jax.random.normal(key, (PACKED, seq_len, n, cfg.head_size), jnp.float32)
        for key, n in zip(keys, heads, strict=True)
    )

    def outputs(name: str, dtype: jnp.dtype) -> list[np.ndarray]:
        attend = attention.ATTENTION[name].make(segments)
        out, back = jax.vjp(attend, *(x.astype(dtype) for x in (q, k, v)))
        return [np.asarray(x, np.float64) for x in (out, *back(g.astype(dtype)))]

    with jax.default_matmul_precision("highest"):
        exact = outputs("reference", jnp.dtype("float32"))
    found = {}
    for name in kernels(small):
        parts = zip(outputs(name, jnp.dtype("bfloat16")), exact, strict=True)
        errors = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in parts]
        found[name] = dict(zip(("out", "dq", "dk", "dv"), errors, strict=True))
    return {"documents": int(segments.max(axis=1).sum()) + PACKED, "errors": found}


def kernels(small: bool) -> list[str]:
    """Those that can run here."""
    cfg = load(small, "auto")
    needed, device = attention.need(cfg.model, cfg.data.seq_len), jax.devices()[0]
    return [n for n, k in attention.ATTENTION.items() if k.refusal(device, needed) is None]


def about() -> dict[str, Any]:
    """The machine and its versions."""
    device = jax.devices()[0]
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib")}
    return {"device": device.device_kind, "versions": versions, "python": sys.version.split()[0]}


def plan(small: bool) -> dict[str, Any]:
    """Memory by kernel as planned for one H200, without one; needs the extra `plan`."""
    from jaxlm.plan import program, target

    where = target.parse("h200:1x1")
    needed, device = None, where.devices()[0]
    found = {}
    for name, kernel in attention.ATTENTION.items():
        cfg = load(small, name)
        needed = attention.need(cfg.model, cfg.data.seq_len)
        if kernel.refusal(device, needed) is None:
            found[name] = program.compile(cfg, where).memory.peak
    return {"target": str(where), "peak_bytes": found}


# ---- all of it, in processes of their own --------------------------------------------------------


def main() -> int:
    """Runs a part, or all of them; 1 if a part failed."""
    parser = argparse.ArgumentParser(prog="bench/gpu_check.sh")
    parser.add_argument("--small", action="store_true", help="a model of two layers, for a CPU")
    parser.add_argument("--dir", type=Path, default=ROOT / "runs/gpu", help="for the results")
    parser.add_argument("--seconds", type=float, default=20.0, help="of steps for each kernel")
    parser.add_argument("--plan", action="store_true", help="only plan: on a machine without GPU")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    if args.part:
        kind, _, name = args.part.partition(":")
        parts = {
            "about": lambda: {**about(), "kernels": kernels(args.small)},
            "compare": lambda: compare(args.small),
            "plan": lambda: plan(args.small),
            "measure": lambda: measure(args.small, name, args.seconds),
            "deterministic": lambda: measure(
                args.small, name, args.seconds, args.dir.absolute() / "autotune"
            ),
        }
        (args.dir / f"{args.part.replace(':', '-')}.json").write_text(json.dumps(parts[kind]()))
        return 0
    if args.plan:
        return 0 if part(args, "plan") else 1
    return everything(args)


def everything(args: argparse.Namespace) -> int:
    """Measures all kernels, and writes gpu.json and gpu.md."""
    began = time.perf_counter()
    here = part(args, "about")
    if here is None:
        return 1
    compared = part(args, "compare")
    measured = [part(args, f"measure:{name}") for name in here["kernels"]]
    fastest = min((m for m in measured if m), key=lambda m: m["step_s"], default=None)
    # In two processes: the second takes the kernels that the first has chosen.
    twice = [part(args, f"deterministic:{fastest['attention']}") for _ in range(2) if fastest]
    planned = args.dir / "plan.json"
    result = {
        **{name: value for name, value in here.items() if name != "kernels"},
        "small": args.small,
        "date": time.strftime("%Y-%m-%d"),
        "seconds": time.perf_counter() - began,
        "compare": compared,
        "measure": [m for m in measured if m is not None],
        "deterministic": [m for m in twice if m is not None],
        "planned": json.loads(planned.read_text()) if planned.is_file() else None,
    }
    (args.dir / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.dir / "gpu.md").write_text(text := "\n".join(lines(result)) + "\n")
    print(text)
    return 0 if compared and None not in [*measured, *twice] else 1


def part(args: argparse.Namespace, name: str) -> dict[str, Any] | None:
    """What a process of its own finds; None if it fails."""
    command = [sys.executable, "-m", "bench.gpu_check", f"--part={name}", f"--dir={args.dir}"]
    command += [f"--seconds={args.seconds}", *(["--small"] if args.small else [])]
    print(f"--- {name}", flush=True)
    environment = None if name == "plan" else {**platforms.environment(), **os.environ}
    limit = None if args.small or name == "plan" else LIMIT_S
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: took too long", flush=True)
        return None
    if done.returncode:
        print(f"{name}: exit code {done.returncode}", flush=True)
        return None
    return json.loads((args.dir / f"{name.replace(':', '-')}.json").read_text())


def lines(result: dict[str, Any]) -> list[str]:
    """The tables."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    planned = (result["planned"] or {}).get("peak_bytes", {})
    out = [
        f"{result['device']}, {versions}, {result['date']}; {result['seconds']:.0f} s in all",
        "",
        "| attention | step, ms | tokens/s | MFU | measured, GiB | compiler's figure | planned |"
        " first losses |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m in result["measure"]:
        sizes = (m["measured_bytes"], m["predicted_bytes"], planned.get(m["attention"]))
        cells = [
            m["attention"],
            f"{m['step_s'] * 1e3:.0f}",
            f"{m['tokens_per_s']:,.0f}",
            "-" if m["mfu"] is None else f"{m['mfu']:.1%}",
            *("-" if size is None else f"{size / 2**30:.2f}" for size in sizes),
            ", ".join(f"{loss:.4f}" for loss in m["losses"]),
        ]
        out.append("| " + " | ".join(cells) + " |")
    usual = {m["attention"]: m["step_s"] for m in result["measure"]}
    for m in result["deterministic"]:
        out += [
            "",
            f"deterministic, {m['attention']}: {m['step_s'] * 1e3:.0f} ms a step, "
            f"{m['step_s'] / usual[m['attention']]:.2f} of the usual; first losses "
            + ", ".join(map(repr, m["losses"])),
        ]
    if result["compare"]:
        out += ["", "| error on packed rows | out | dq | dk | dv |", "|---|---|---|---|---|"]
        for name, errors in result["compare"]["errors"].items():
            out.append(f"| {name} | " + " | ".join(f"{e:.1e}" for e in errors.values()) + " |")
    return out


if __name__ == "__main__":
    sys.exit(main())
