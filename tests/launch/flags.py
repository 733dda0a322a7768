"""Flags of kubectl, gcloud and docker, as their own help lists them, and what is wrong with a line.

python -m tests.launch.flags     # with all installed: writes tests/launch/recorded/*.json anew

The commands are those that the launcher and docs/clusters.md use.
"""

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"

COMMANDS = {
    "docker": ("build", "push"),
    "kubectl": (
        "apply",
        "annotate",
        "create",
        "create namespace",
        "create serviceaccount",
        "delete",
        "describe",
        "get",
        "logs",
        "wait",
    ),
    "gcloud": (
        "artifacts repositories create",
        "artifacts repositories add-iam-policy-binding",
        "auth configure-docker",
        "auth login",
        "builds submit",
        "components install",
        "compute resource-policies create workload-policy",
        "compute tpus accelerator-types list",
        "compute tpus queued-resources create",
        "compute tpus queued-resources delete",
        "compute tpus queued-resources describe",
        "compute tpus queued-resources list",
        "compute tpus tpu-vm describe",
        "compute tpus tpu-vm ssh",
        "config set",
        "container clusters create",
        "container clusters get-credentials",
        "container node-pools create",
        "container node-pools delete",
        "container node-pools list",
        "iam service-accounts create",
        "logging read",
        "projects add-iam-policy-binding",
        "projects describe",
        "services enable",
        "storage buckets add-iam-policy-binding",
        "storage buckets create",
    ),
}


@functools.cache
def known(tool: str) -> dict[str, list[str]]:
    """Command -> flags; those of every command are under ''."""
    return json.loads((RECORDED / f"{tool}.json").read_text(encoding="utf-8"))["flags"]


def problems(line: Sequence[str]) -> Iterator[str]:
    """Flags, of a command line of these tools, that are none of this command's."""
    tool, *words = line
    flags = known(tool)
    named = [w for w in words if not w.startswith("-")]
    lengths = range(len(named), 0, -1)
    command = next((c for n in lengths if (c := " ".join(named[:n])) in flags), None)
    if command is None:
        yield f"{' '.join(line)}: no such command is recorded"
        return
    for word in words:
        flag = word.partition("=")[0]
        if flag == "--":
            return
        if flag.startswith("-") and flag not in (*flags[command], *flags[""]):
            yield f"{tool} {command}: no flag {flag}"


def _help(tool: str, command: str) -> str:
    words = [tool, *command.split()]
    line = [tool, "options"] if words == ["kubectl"] else [*words, "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def _flags(text: str) -> list[str]:
    """Those that start a line of the help, their short forms, and their negations."""
    found = set[str]()
    for short, flag in re.findall(r"^\s+(?:(-\w), )?(--[a-z][a-z0-9-]*)", text, re.MULTILINE):
        found |= {short, flag} - {""}
    return sorted(found | {f"--no-{f[2:]}" for f in found if f"--no-{f[2:]} " in text})


def _record(tool: str, version: Sequence[str]) -> None:
    said = subprocess.run(version, capture_output=True, text=True, check=True).stdout
    flags = {command: _flags(_help(tool, command)) for command in ("", *COMMANDS[tool])}
    data = {"of": said.splitlines()[0], "by": f"{tool} COMMAND --help", "flags": flags}
    path = RECORDED / f"{tool}.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record("docker", ["docker", "--version"])
    _record("kubectl", ["kubectl", "version", "--client"])
    _record("gcloud", ["gcloud", "--version"])
