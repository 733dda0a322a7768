"""The program of a plan: one name for it everywhere, and a refusal that is a result."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlm.config import Config, DataConfig, ModelConfig, TrainConfig
from jaxlm.plan import memory, program, target

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]

LOWER = """
from jaxlm.config import Config, DataConfig, ModelConfig, TrainConfig
from jaxlm.plan import program, target
cfg = Config(
    model=ModelConfig(vocab_size=512, d_model=256, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=256,
                      remat="full", dropout=(("0 rows", 0.1),)),
    data=DataConfig(source="synthetic", seq_len=256),
    train=TrainConfig(batch_size=8, end="8 rows"),
)
print(program.__file__)
for name in ("v5e:2x2", "h100:1x4"):
    lowered = program.lower(cfg, target.parse(name))
    print(name, lowered.step.model.attention, lowered.digest)
"""


def lower_in(clone: Path, seed: str) -> list[str]:
    """What a process says that lowers a step for a TPU and a GPU, with the code of this clone."""
    environment = {**os.environ, "PYTHONPATH": str(clone), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", LOWER]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, *lines = done.stdout.splitlines()
    assert Path(where) == clone / "jaxlm/plan/program.py"
    return lines


def test_two_clones_give_one_digest(tmp_path):
    """Kernels travel in a program as bytes, and files and lines must not travel with them."""
    first, second = tmp_path / "a", tmp_path / "another/deeper"
    for clone in (first, second):
        shutil.copytree(ROOT / "jaxlm", clone / "jaxlm", ignore=shutil.ignore_patterns("*.pyc"))
    for file in (second / "jaxlm/ops/attention").glob("*.py"):
        file.write_text("# A line more.\n" + file.read_text())
    found = lower_in(first, "1")
    assert [line.split()[:2] for line in found] == [["v5e:2x2", "splash"], ["h100:1x4", "pallas"]]
    assert lower_in(second, "2") == found


@pytest.fixture
def too_large() -> Config:
    """Table and head of 65,536 x 12,288, with both moments: 18 GiB."""
    return Config(
        model=ModelConfig(
            vocab_size=65_536,
            d_model=12_288,
            n_layers=1,
            n_heads=1,
            n_kv_heads=1,
            head_dim=128,
            d_ff=128,
        ),
        data=DataConfig(source="synthetic", seq_len=128),
        train=TrainConfig(batch_size=1, end="1 rows"),
    )


def test_a_program_that_does_not_fit_is_a_result(too_large):
    """A v5e has 15.75 GiB."""
    chip = target.parse("v5e:1x1")
    found = program.compile(too_large, chip)
    assert found.refusal is not None and "RESOURCE_EXHAUSTED" in found.refusal
    assert found.text == ""
    fit = memory.Fit(found.memory.peak, chip.chip.memory_bytes, found.memory.host, 1)
    assert not fit.fits and fit.headroom < 0
    held = memory.holders(found.memory, found.state, found.batch)
    assert held.parameters == 4 * (2 * 12_288 * 65_536 + 12_288 * (4 * 128 + 3 * 128 + 3))
    assert sum(held[:4]) == found.memory.peak
    size, shapes = memory.largest(found.log)[0]
    assert size == 3 * 2**30 and "65536" in shapes
