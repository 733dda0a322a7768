"""A plan without a compiler: a config, and figures that nobody has measured."""

import json
from dataclasses import replace
from typing import Any

from jaxlm.config import Config, DataConfig, MeshConfig, ModelConfig, OptimConfig, TrainConfig
from jaxlm.plan import prices, target
from jaxlm.plan.figures import Flops, Layout, Plan, Run, Traffic
from jaxlm.plan.memory import Fit, Holders
from jaxlm.plan.roofline import Roofline

GIB = 2**30

CONFIG = Config(
    model=ModelConfig(
        vocab_size=32_768,
        d_model=1024,
        n_layers=4,
        n_heads=8,
        n_kv_heads=4,
        d_ff=2816,
        remat="full",
    ),
    data=DataConfig(source="synthetic", seq_len=2048),
    optim=OptimConfig(),
    train=TrainConfig(batch_size=32, rows_per_device=2, end="1000 steps"),
    mesh=MeshConfig(1, 8, 1),
)

TARGET = target.parse("h100:1x8")

PLAN = Plan(
    config="configs/a.py",
    target="h100:1x8",
    chips=8,
    devices=8,
    layout=Layout(
        mesh={"data": 1, "fsdp": 8, "tensor": 1},
        batch_size=32,
        seq_len=2048,
        microbatches=2,
        rows_per_device=2,
        remat="full",
        offload=(),
        vocab_blocks=1,
        attention="pallas",
    ),
    memory=Holders(parameters=GIB, optimizer=2 * GIB, batch=GIB // 1024, rest=5 * GIB, host=0),
    fit=Fit(peak=8 * GIB + GIB // 1024, capacity=72 * GIB, host=0, host_capacity=200 * GIB),
    alive=(),
    remedies=(),
    flops=Flops(model=100e12, model_all_pairs=110e12, expected=120e12, executed=124e12),
    traffic=(
        Traffic("all-gather", ("fsdp",), 20, 400 * 2**20, 400 * 2**20, 0.0),
        Traffic("reduce-scatter", ("fsdp",), 10, 300 * 2**20, 200 * 2**20, 75 * 2**20),
    ),
    roofline=Roofline(compute=0.125, memory=0.05, link=0.025, network=0.0),
    run=Run(
        params=114_000_000,
        tokens=65_536_000,
        steps=1000,
        step_s=0.125,
        step_serial_s=0.2,
        tokens_per_s=524_288.0,
        mfu=0.8,
        mfu_all_pairs=0.88,
        days=2.0,
        days_serial=3.2,
        chip_hours=384.0,
        chip_hours_serial=614.4,
    ),
    price=prices.table()["h100"],
    preemption=None,
    notes=("all is made up",),
    digest="0123456789abcdef",
    compile_s=2.0,
    versions={"jax": "1.2.3"},
)


def row(config: str, target: str, days: float = 2.0) -> dict[str, Any]:
    """A row of the table of plans as it is read; scalars are summed too."""
    assert PLAN.run is not None
    scalars = Traffic("all-reduce", ("fsdp",), 3, 64.0, 64.0, 64.0)
    run = replace(PLAN.run, tokens=25 * 10**9, days=days)
    made = replace(
        PLAN, config=config, target=target, run=run, traffic=(*PLAN.traffic, scalars)
    ).to_json()
    row = {"name": f"{config}:{target}", "date": "2026-12-01", "basis": "b", "plan": made}
    return json.loads(json.dumps(row))


def plan(*, peak_gib: float = 8.0, step_s: float = 0.125) -> Plan:
    """The plan, with another memory or time."""
    roofline = Roofline(step_s, step_s / 2, 0.0, 0.0)
    fit = PLAN.fit._replace(peak=int(peak_gib * GIB))
    return replace(PLAN, fit=fit, roofline=roofline)
