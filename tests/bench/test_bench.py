"""The command, and the parts that are not the step."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import loader


def test_the_command_line_is_read_without_loading_jax():
    code = "import sys, bench.cli; bench.cli.parser(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_loader_part_prints_and_writes_its_figures(tmp_path: Path):
    command = [sys.executable, "-m", "bench", "loader", f"--json={tmp_path / 'bench.json'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    speed = found["loader"]["tokens_per_s"]
    assert f"{speed:,.0f}" in done.stdout
    assert speed * found["loader"]["batch_s"] == pytest.approx(loader.BATCH * loader.SEQ_LEN)
