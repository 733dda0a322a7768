"""The check of a GPU from end to end, without one: `bench/gpu_check.sh --small`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "bench/gpu_check.sh"


def test_the_gpu_check_runs_on_a_cpu_and_writes_its_results(tmp_path):
    (tmp_path / "plan.json").write_text('{"target": "h200:1x1", "peak_bytes": {"reference": 1e9}}')
    command = ["bash", str(SCRIPT), "--small", f"--dir={tmp_path}", "--seconds=0.5"]
    alone = {**os.environ, "XLA_FLAGS": ""}  # one device
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["device"] == "cpu"
    measured = {m["attention"]: m for m in found["measure"]}
    assert set(measured) == {"cpu", "reference"}
    for one in measured.values():
        assert one["step_s"] > 0 and one["predicted_bytes"] > 0
        assert one["unknown_options"] == [] and len(one["losses"]) == 3
        assert all(4 < loss < 9 for loss in one["losses"])  # about ln 500
    one, other = found["deterministic"]
    assert one["losses"] == other["losses"]
    assert one["losses"] in [m["losses"] for m in measured.values()]  # of a CPU
    assert found["compare"]["documents"] > 2
    for errors in found["compare"]["errors"].values():
        assert all(1e-4 < e < 0.02 for e in errors.values())
    table = (tmp_path / "gpu.md").read_text()
    assert "| reference |" in table and "| 0.93 |" in table and table.rstrip() in done.stdout


def test_the_check_needs_nothing_that_a_gpus_image_may_lack():
    code = (
        "import sys, bench.gpu_check\n"
        "for name in ('grain', 'array_record', 'datasketch', 'sentencepiece', 'tensorboardX'):\n"
        "    assert name not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SCRIPT.parents[1])
