"""A made-up row of the table of plans, in the form in which a plan writes itself."""

from typing import Any

GIB = 2**30


def row(config: str, target: str, days: float = 2.0) -> dict[str, Any]:
    """All that the pages read of a row."""
    traffic = [
        {"kind": "all-gather", "axes": ["fsdp"], "count": 704, "bytes": 22.0 * GIB,
         "least": 20.0 * GIB, "synchronous": 5.5 * GIB},
        {"kind": "all-reduce", "axes": ["fsdp"], "count": 3, "bytes": 64.0, "least": 64.0,
         "synchronous": 64.0},
    ]  # fmt: skip
    plan = {
        "config": config,
        "target": target,
        "devices": 8,
        "layout": {"mesh": {"data": 1, "fsdp": 8, "tensor": 1}, "microbatches": 16,
                   "rows_per_device": 4, "remat": "full", "offload": [], "attention": "pallas"},
        "memory": {"parameters": GIB, "optimizer": 2 * GIB, "batch": GIB // 2,
                   "rest": 9 * GIB // 2, "host": 0},
        "fit": {"peak": 8 * GIB, "capacity": 32 * GIB, "fits": True, "headroom": 0.75},
        "flops": {"model": 1.2e15, "executed": 1.5e15, "expected": 1.488e15},
        "traffic": traffic,
        "roofline": {"bound": "compute"},
        "run": {"tokens": 25 * 10**9, "step_s": 2.0, "step_serial_s": 3.0, "mfu": 0.45,
                "mfu_all_pairs": 0.47, "tokens_per_s": 2**20, "days": days, "days_serial": 3.0,
                "chip_hours": 8 * 24 * days},
        "price": {"on_demand": 3.0, "spot": 1.5},
        "notes": ["mind the gap"],
        "digest": "0123456789abcdef",
        "compile_s": 12.0,
        "versions": {"jax": "0.12.0.1"},
    }  # fmt: skip
    return {"name": f"{config}:{target}", "date": "2026-12-01", "basis": "b", "plan": plan}
