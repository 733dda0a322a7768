"""What pip would install in the images, by its own resolver, and a training on what they copy."""

import re
import tomllib
from pathlib import Path

import pytest

from bench import runs
from tests.launch import images

pytestmark = pytest.mark.system

PINS = images.pins((images.ROOT / "constraints.txt").read_text(encoding="utf-8"))
OF_ACCELERATOR = {
    "tpu": {"libtpu"},
    "gpu": {"jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"},
}
SMALL = """\
FROM python:3.13.15-slim-bookworm
WORKDIR /jaxlm
COPY constraints.txt ./
RUN pip install --only-binary=:all: --constraint=constraints.txt flask
"""
FLASK = {"flask", "blinker", "click", "itsdangerous", "jinja2", "markupsafe", "werkzeug"}
TINY = (
    "data.source=synthetic",
    "model.vocab_size=320",
    "model.d_model=32",
    "model.n_layers=1",
    "model.n_heads=2",
    "model.n_kv_heads=1",
    "model.d_ff=64",
    "data.seq_len=32",
    "train.batch_size=2",
    "train.rows_per_device=2",
    "train.end=2 steps",
    "optim.warmup=1 steps",
)


@pytest.fixture(scope="module")
def env(tmp_path_factory) -> dict[str, str]:
    return images.environment(tmp_path_factory.mktemp("python"))


def resolved(dockerfile: str, root: Path, place: Path, env) -> tuple[dict[str, str], str]:
    """What its RUN would install, and what pip says."""
    found = list[tuple[dict[str, str], str]]()
    python = re.search(r"python:(\d+\.\d+)", dockerfile)[1]
    images.build(
        dockerfile,
        root,
        place,
        lambda run, here: found.append(images.resolve(run, here, env, python)),
    )
    (only,) = found
    return only


@pytest.mark.parametrize("name", images.NAMES)
def test_all_that_is_installed_is_pinned(name, env, tmp_path):
    installed, said = resolved(images.text(name), images.ROOT, tmp_path, env)
    assert installed, said
    assert images.unpinned(installed, PINS) == []

    project = tomllib.loads((images.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["hf"], *extras["stores"]]
    names = {images.normal(re.match(r"[\w.-]+", line)[0]) for line in wanted}
    assert names | OF_ACCELERATOR[name] <= set(installed)
    (other,) = set(images.NAMES) - {name}
    assert not {"ray", "pytest", *OF_ACCELERATOR[other]} & set(installed)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (r"(?m)^blinker==.*\n", "", "blinker=="),
        (r"(?m)^Jinja2==.*", "Jinja2==2.0", "ResolutionImpossible"),
        (r"(?m)^blinker==.*", "blinker==99.0", "ResolutionImpossible"),
    ],
)
def test_a_wrong_pin_would_be_seen(old, new, problem, env, tmp_path):
    constraints = (images.ROOT / "constraints.txt").read_text(encoding="utf-8")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/constraints.txt").write_text(re.sub(old, new, constraints))
    installed, said = resolved(SMALL, tmp_path / "root", tmp_path / "image", env)
    pinned = images.pins((tmp_path / "root/constraints.txt").read_text())
    wrong = images.unpinned(installed, pinned)
    assert any(problem in found for found in (wrong if installed else [said]))
    assert not installed or (set(installed) == FLASK and len(wrong) == 1)


def test_it_trains_there(env, tmp_path):
    here = images.build(images.text("tpu"), images.ROOT, tmp_path / "image")
    host = ["python", "-m", "launch", "host", "--once", f"--workdir={tmp_path / 'run'}"]
    config = ["--config=configs/own.py", *(f"--config.{field}" for field in TINY)]
    flags = runs.environment(devices=1)["XLA_FLAGS"]
    code, said = images.say([*host, *config], here, {**env, "XLA_FLAGS": flags})
    assert code == 0, said
    assert any((tmp_path / "run/checkpoints").iterdir())
