"""What the process tests share: a corpus, a config, and the run that nothing interrupted."""

from pathlib import Path

import pytest

from bench import runs

LONGEST = (
    "test_demo.py",
    "test_faults.py",
    "test_corpus.py",
    "test_rollback.py",
    "test_store_run.py",
    "test_processes.py",
    "test_slurm.py",
    "test_ray_launch.py",
)
"""Files of several minutes, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They begin first: two workers take a file at a time, and should end at the same time."""
    order = {Path(__file__).with_name(name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def config(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    return runs.config_file(root / "run.json", runs.corpus(root / "data"))


@pytest.fixture(scope="session")
def whole(config, tmp_path_factory) -> Path:
    """Work directory of an uninterrupted run on one device."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    code, output = runs.finish(runs.train(config, workdir), workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir
