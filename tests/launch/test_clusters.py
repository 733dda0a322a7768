"""docs/clusters.md: command lines with flags that the tools have, and a table as the code's."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from launch import LAUNCHERS, gke_arguments, tpu_vm_arguments
from launch.machines import MACHINES
from tests.launch import flags, jobsets

PAGE = (Path(__file__).parents[2] / "docs/clusters.md").read_text(encoding="utf-8")


def lines(*starts: str) -> list[list[str]]:
    """Indented command lines that start so, as words; \\ at the end of a line joins the next."""
    joined = re.sub(r"\\\n\s*", "", PAGE)
    found = [line.strip() for line in joined.splitlines() if line.startswith("    ")]
    return [shlex.split(line, comments=True) for line in found if line.startswith(starts)]


def test_flags_of_kubectl_gcloud_and_docker_are_theirs():
    found = lines("kubectl ", "gcloud ", "docker ")
    assert len(found) > 20
    wrong = [problem for line in found for problem in flags.problems(line)]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("gcloud container node-pools create a --tpu-topologie=4x4", "no flag --tpu-topologie"),
        ("gcloud container pools create a", "no such command is recorded"),
        ("kubectl get pods --wait", "kubectl get: no flag --wait"),
        ("docker build --dockerfile=a .", "docker build: no flag --dockerfile"),
    ],
)
def test_a_wrong_flag_would_be_seen(line, problem):
    assert any(problem in found for found in flags.problems(shlex.split(line)))


@pytest.mark.parametrize(
    ("name", "read_look"),
    [("gke", gke_arguments.read_look), ("tpu-vm", tpu_vm_arguments.read_look)],
)
def test_command_lines_of_clouds_are_taken(name, read_look, capsys):
    actions = {"status", "logs", "stop"}
    found = [line[4:] for line in lines(f"python -m launch {name}")]
    submitted = [line for line in found if line[0] not in actions]
    assert len(submitted) >= 2 and {line[0] for line in found} > actions
    for line in submitted:
        assert LAUNCHERS[name]([*line, "--dry-run"]) == 0, line
    for action, *rest in found:
        if action in actions:
            read_look(action, rest)


@pytest.mark.parametrize("name", ["local", "ray", "slurm", "ssh"])
def test_command_lines_of_the_others_are_taken(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hosts.txt").write_text("node1\nnode2\n")
    found = [line[4:] for line in lines(f"python -m launch {name}")]
    submitted = [line for line in found if line[0] not in ("status", "logs", "stop")]
    assert submitted
    for line in submitted:
        assert LAUNCHERS[name]([*line, "--dry-run"]) == 0, line
    for line in found:  # there is nothing yet
        if line not in submitted and name not in ("ray", "slurm"):
            assert LAUNCHERS[name](line) in (0, 2), line


def test_targets_of_config_files_are_theirs():
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    found = {
        name
        for page in pages
        for name in re.findall(r"configs/(\w+)\.py:([\w-]+:\w+)", page.read_text(encoding="utf-8"))
    }
    assert len(found) > 1
    for file, target in found:
        assert target in importlib.import_module(f"configs.{file}").TARGETS, (file, target)


def test_the_table_of_accelerators_is_the_one_of_the_code():
    rows = re.findall(r"^\| `([\w-]+):(\w+)` \| `([\w-]+)` \| `([\w-]+)` \| (.*) \|$", PAGE, re.M)
    for name, shape, machine_type, label, network in rows:
        machine = MACHINES[name]
        assert (machine_type, label) == (machine.machine_type, machine.label)
        assert jobsets.make(f"{name}:{shape}").target.hosts > 1
        if machine.fabric is not None and network != "the same":
            first, *_, last = list(machine.fabric.interfaces.values())[1:]
            assert machine.fabric.name in network and f"`{first}` to `{last}`" in network
    assert [row[0] for row in rows] == list(MACHINES)
