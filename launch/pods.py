"""What a JobSet and its pods say of themselves, as kubectl prints them, in a few lines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from launch import jobset

ENDED = ("completed", "failed")


def state(found: dict[str, Any]) -> str:
    """Of a JobSet: one of `ENDED`, or stopping, queued, running."""
    if "deletionTimestamp" in found["metadata"]:
        return "stopping"
    terminal = found.get("status", {}).get("terminalState", "").lower()
    if terminal in ENDED:
        return terminal
    return "queued" if found["spec"].get("suspend") else "running"


def lines(found: dict[str, Any], pods: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is to be known of it."""
    status, metadata = found.get("status", {}), found["metadata"]
    restarts, counted = status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)
    most = found["spec"].get("failurePolicy", {}).get("maxRestarts", 0)
    yield f"{metadata['name']}: {state(found)}, restarts {restarts}, {counted} of {most} count"
    for condition in status.get("conditions", []):
        if condition["type"] == "Failed" and condition["status"] == "True":
            yield f"  {condition.get('message', condition.get('reason', ''))}"
    spec = found["spec"]["replicatedJobs"][0]
    wanted = spec["template"]["spec"]["parallelism"]
    for index in range(spec.get("replicas", 1)):
        yield from _job_lines(index, wanted, [p for p in pods if _label(p) == str(index)])
    workdir = metadata.get("annotations", {}).get(jobset.WORKDIR)
    if workdir:
        yield f"where the run is: jaxlm status --workdir={workdir}"


def _job_lines(index: int, wanted: int, pods: Sequence[dict[str, Any]]) -> Iterator[str]:
    phases = Counter(_phase(pod) for pod in pods)
    found = ", ".join(f"{n} {phase}" for phase, n in sorted(phases.items())) or "none yet"
    yield f"job {index}, {wanted} pods: {found}"
    reasons = Counter(filter(None, map(_reason, pods)))
    for reason, n in reasons.most_common(3):
        yield f"  {n} {'pod' if n == 1 else 'pods'}: {reason}"


def _label(pod: dict[str, Any]) -> str:
    return pod["metadata"].get("labels", {}).get(jobset.JOB_INDEX_LABEL, "0")


def _phase(pod: dict[str, Any]) -> str:
    ending = "deletionTimestamp" in pod["metadata"]
    return "terminating" if ending else pod.get("status", {}).get("phase", "Unknown").lower()


def _reason(pod: dict[str, Any]) -> str:
    """Why it does not run."""
    status = pod.get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("message", condition.get("reason", ""))
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return f"disrupted: {condition.get('message', condition.get('reason', ''))}"
    for container in (
        *status.get("initContainerStatuses", []),
        *status.get("containerStatuses", []),
    ):
        at = container.get("state", {})
        if "waiting" in at:
            waiting = at["waiting"]
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
        if at.get("terminated", {}).get("exitCode"):
            return f"{container['name']} ended with exit code {at['terminated']['exitCode']}"
    return ""
