"""`jaxlm plan` from end to end, with the compilers of a TPU and a GPU, neither of which is here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

CONFIG = """\
from jaxlm.config import schema

def get_config():
    c = schema()
    c.model.vocab_size = 2048
    c.model.d_model = 256
    c.model.n_layers = 2
    c.model.n_heads = 4
    c.model.n_kv_heads = 2
    c.model.head_dim = 128
    c.model.d_ff = 768
    c.model.remat = "full"
    c.data.source = "synthetic"
    c.data.seq_len = 512
    c.train.batch_size = 32
    c.train.rows_per_device = 2
    c.train.end = "1000 steps"
    return c
"""

KERNELS = {"v5e:2x4": "splash", "h100:1x8": "pallas"}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "small.py"
    path.write_text(CONFIG)
    return path


def plan(config: Path, *args: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    command = [sys.executable, "-m", "jaxlm", "plan", f"--config={config}", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("target", KERNELS)
def test_a_plan_of_a_small_config(config, target):
    mesh = ("--config.mesh.data=2", "--config.mesh.fsdp=4")
    code, out, err = plan(config, f"--target={target}", *mesh, "--json", "--preemptions-per-day=2")
    assert code == 0, err
    data = json.loads(out)
    assert data["layout"]["mesh"] == {"data": 2, "fsdp": 4, "tensor": 1}
    assert data["layout"]["attention"] == KERNELS[target] and data["layout"]["microbatches"] == 2
    flops = data["flops"]
    assert abs(flops["executed"] / flops["expected"] - 1) < 0.05
    sent = {(row["kind"], *row["axes"]): row for row in data["traffic"]}
    gathered = sent["all-gather", "fsdp"]
    assert 0.99 < gathered["bytes"] / gathered["least"] < 1.1
    replicas = sent["all-reduce", "data"]
    assert 0.99 < replicas["bytes"] / replicas["least"] < 1.1
    held = data["memory"]
    parameters = 4 * (2 * (256 * 128 * 12 + 3 * 256 * 768) + 2 * 2048 * 256) / 4
    assert held["parameters"] == pytest.approx(parameters, rel=0.02)
    assert held["optimizer"] == pytest.approx(2 * parameters, rel=0.02)
    assert sum(held[k] for k in ("parameters", "optimizer", "batch", "rest")) == data["fit"]["peak"]
    assert data["fit"]["fits"] and 0 < data["run"]["mfu"] < 1
    assert data["preemption"]["checkpoint_bytes"] == pytest.approx(12 * parameters, rel=0.02)
    assert "compiling" in err and len(err.splitlines()) < 10  # of the compilers' own words, none


def test_a_program_that_is_too_large_names_who_holds_the_memory_and_what_would_fit(config):
    """4,096 rows at once: the logits alone are 16 GiB, on a chip of 15.75."""
    rows = ("--config.train.batch_size=32768", "--config.train.rows_per_device=4096")
    code, out, err = plan(config, "--target=v5e:2x4", *rows, "--config.train.end=10 steps")
    assert code == 2, err
    assert "DOES NOT FIT" in out and "changes and what a device would then need" in out
    assert "--config.train.rows_per_device=2048" in out


def test_a_search_compiles_what_it_may_and_names_the_best(config):
    code, out, err = plan(config, "--target=h100:1x8", "--search", "--compiles=1")
    assert code == 0, err
    assert out.splitlines()[-1].startswith("the best of them: --config.mesh.data=")
    assert err.count("jaxlm plan: compiling") == 1
