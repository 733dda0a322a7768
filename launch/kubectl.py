"""Calls of kubectl, and what its refusals mean: one line, with the remedy."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from launch import jobset

WAIT_S = 120.0
"""That a call may take which asks for little; kubectl itself gives a request 30 s."""
REQUEST = "--request-timeout=30s"

_UNREACHABLE = "|".join(
    (
        "Unable to connect|was refused|no such host|i/o timeout|deadline exceeded",
        "handshake timeout|Client.Timeout|context was not found|context .* does not exist",
        "no configuration has been provided|current-context",
    )
)
_REMEDIES = (
    (
        r"doesn't have a resource type \"?jobsets?\b|no matches for kind \"JobSet\"",
        f"install JobSet {jobset.OLDEST} or later in the cluster",
    ),
    ("doesn't have a resource type \"localqueues", "install Kueue in it, or leave out --queue"),
    ("serviceaccounts .* not found", "make it with `kubectl create serviceaccount`"),
    (
        "unknown field",
        f"the cluster's JobSet is older than {jobset.OLDEST}: install a later one",
    ),
    (
        _UNREACHABLE,
        "choose the cluster with `gcloud container clusters get-credentials` or --context, and "
        "see that it can be reached from here",
    ),
    ("denied the request", "that is a rule of the cluster, not of Kubernetes: ask who runs it"),
    (
        "[Ff]orbidden|[Uu]nauthorized|must be logged in|gke-gcloud-auth-plugin",
        "log in with `gcloud auth login`; who submits needs the role "
        "roles/container.developer in the cluster's project",
    ),
    ('namespaces ".*" not found', "make it with `kubectl create namespace`, or leave it out"),
    ("AlreadyExists|already exists", "somebody else has just submitted it"),
)
"""What kubectl says -> what helps."""
_NOISE = re.compile(r"[EWI]\d{4} \d\d:")
"""Its own log, before what it says."""


class Refused(Exception):
    """kubectl is not there, or did not do it: a line that says why, and what helps."""


def call(command: Sequence[str], stdin: str = "", wait_s: float = WAIT_S) -> str:
    """What it prints."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=wait_s, check=False
        )
    except FileNotFoundError:
        raise _missing() from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{_shown(command)}: no answer within {wait_s:.0f} s") from None
    if done.returncode:
        raise Refused(f"{_shown(command)}: {explained(done.stderr)}")
    return done.stdout


def read(command: Sequence[str]) -> dict[str, Any] | None:
    """The object that it prints as JSON; None if it prints nothing."""
    text = call(command)
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise Refused(f"{_shown(command)}: prints no JSON: {text.strip()[:100]!r}") from None


def show(command: Sequence[str]) -> int:
    """Runs it for as long as it takes, with our output and our Ctrl-C; its exit code."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError:
        raise _missing() from None


def explained(stderr: str) -> str:
    """The last thing that it said, on a line, and the remedy if it is known."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in said if not _NOISE.match(line)] or said or ["it failed in silence"]
    last = next((line for line in reversed(said) if line.lower().startswith("error")), said[-1])
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, stderr):
            return f"{last}; {remedy} (docs/clusters.md)"
    return last


def _missing() -> Refused:
    return Refused(
        "kubectl: is not installed; `gcloud components install kubectl gke-gcloud-auth-plugin` "
        "brings it (docs/clusters.md)"
    )


def _shown(command: Sequence[str]) -> str:
    """Without its flags."""
    return shlex.join(word for word in command if not word.startswith("-"))
