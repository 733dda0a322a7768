"""Runs a job on Google Kubernetes Engine: a JobSet, submitted, looked at and stopped by kubectl.

The manifest is JSON: kubectl takes it as it takes YAML, and nothing needs to be installed here for
it. The JobSet's name is made from the work directory, so that nothing is stored: the same
--workdir finds it again.
"""

import argparse
import functools
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launch import arguments, exits, gke_arguments, jobset, pods
from launch.jobset import Job
from launch.kubectl import KUBECTL, REQUEST
from launch.process import say


@dataclass(frozen=True)
class Plan:
    """What submitting does, as plain data."""

    manifest: dict[str, Any]
    needs: tuple[tuple[str, ...], ...]
    """Each prints an object that the manifest names; without it no pod would come, or not queue."""
    look: tuple[str, ...]
    """Prints the JobSet of that name, if there is one."""
    clear: tuple[str, ...]
    """Deletes one that has ended."""
    create: tuple[str, ...]
    """Takes the manifest on its standard input."""

    def __str__(self) -> str:
        """As a shell script."""
        return (
            f"{''.join(f'{shlex.join(need)}\n' for need in self.needs)}{shlex.join(self.look)}\n"
            f"# goes on if that prints nothing; one that has ended is deleted first:\n"
            f"# {shlex.join(self.clear)}\n"
            f"{shlex.join(self.create)} <<'EOF'\n{json.dumps(self.manifest, indent=2)}\nEOF"
        )


def plan(job: Job, place: Sequence[str] = ()) -> Plan:
    """`place`: flags of kubectl that say where, `--namespace=...`; none: where it is set to."""
    named = (("localqueues.kueue.x-k8s.io", job.queue), ("serviceaccounts", job.service_account))
    return Plan(
        manifest=jobset.manifest(job),
        needs=tuple(
            ("kubectl", "get", kind, name, *place, REQUEST, "--output=name")
            for kind, name in named
            if name
        ),
        look=_look(job.name, place),
        clear=_delete(job.name, place, job.grace_s + jobset.MARGIN_S),
        create=("kubectl", "create", *place, REQUEST, "--validate=strict", "--filename=-"),
    )


def submit(planned: Plan) -> None:
    """Creates the JobSet, in place of one that has ended.

    `ValueError` if one of that name runs, `Refused` if kubectl does not do it.
    """
    for need in planned.needs:
        KUBECTL.call(need)
    found = KUBECTL.read(planned.look)
    if found is not None:
        name, state = _own(found)["metadata"]["name"], pods.state(found)
        if state not in pods.ENDED:
            raise ValueError(f"{name} is there already, {state}; stop it first, or wait for it")
        KUBECTL.call(planned.clear)
    KUBECTL.call(planned.create, json.dumps(planned.manifest))


def _look(name: str, place: Sequence[str]) -> tuple[str, ...]:
    flags = ("--ignore-not-found", "--output=json")
    return ("kubectl", "get", "jobset", name, *place, REQUEST, *flags)


def _delete(name: str, place: Sequence[str], grace_s: int) -> tuple[str, ...]:
    """Returns when the pods are gone, that is when they have saved."""
    flags = ("--cascade=foreground", "--wait=true", f"--timeout={grace_s + 60}s")
    return ("kubectl", "delete", "jobset", name, *place, *flags)


# ---- looking at a job, and stopping it -----------------------------------------------------------


def _status(name: str, place: Sequence[str], args: argparse.Namespace) -> int:
    found = _found(name, place)
    selector = f"--selector={jobset.NAME_LABEL}={name}"
    get = ("kubectl", "get", "pods", *place, REQUEST, selector, "--output=json")
    for line in pods.lines(found, (KUBECTL.read(get) or {}).get("items", [])):
        print(line)
    return exits.DONE


def _logs(name: str, place: Sequence[str], args: argparse.Namespace) -> int:
    spec = _found(name, place)["spec"]["replicatedJobs"][0]
    each, slices = spec["template"]["spec"]["parallelism"], spec.get("replicas", 1)
    if args.process >= each * slices:
        raise ValueError(f"--process={args.process}: {name} has {each * slices}, counted from 0")
    job_index, pod_index = divmod(args.process, each)
    labels = {
        jobset.NAME_LABEL: name,
        jobset.JOB_INDEX_LABEL: job_index,
        jobset.POD_INDEX_LABEL: pod_index,
    }
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    flags = [f"--selector={selector}", f"--container={jobset.CONTAINER}", f"--tail={args.lines}"]
    follow = ["--follow"] if args.follow else [REQUEST]
    code = KUBECTL.show(("kubectl", "logs", *place, *flags, *follow))
    return exits.DONE if code == 0 else exits.ENVIRONMENT


def _stop(name: str, place: Sequence[str], args: argparse.Namespace) -> int:
    job = _found(name, place)["spec"]["replicatedJobs"][0]["template"]["spec"]
    grace_s = job["template"]["spec"].get("terminationGracePeriodSeconds", 30)
    say(f"stopping {name}: every process saves and ends, within {grace_s} s")
    KUBECTL.call(_delete(name, place, grace_s), wait_s=grace_s + 120.0)
    say(f"{name} is stopped; submitting it again goes on from its newest checkpoint")
    return exits.DONE


def _found(name: str, place: Sequence[str]) -> dict[str, Any]:
    found = KUBECTL.read(_look(name, place))
    if found is None:
        raise ValueError(
            f"there is no JobSet {name} where kubectl looks; it was never submitted, or stopped: "
            "--namespace and --context say where, --name which"
        )
    return _own(found)


def _own(found: dict[str, Any]) -> dict[str, Any]:
    """`ValueError` for a JobSet that somebody else has made."""
    if not jobset.OWNER.items() <= found["metadata"].get("labels", {}).items():
        raise ValueError(
            f"the JobSet {found['metadata']['name']} was not made by this launcher; use --name"
        )
    return found


ACTIONS: dict[str, Callable[[str, Sequence[str], argparse.Namespace], int]] = {
    "status": _status,
    "logs": _logs,
    "stop": _stop,
}


# ---- command line --------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """`python -m launch gke [status|logs|stop] ARGUMENTS`; returns the exit code."""
    actions = {name: functools.partial(_look_at, name) for name in ACTIONS}
    return arguments.act(argv, actions, _submit)


def _look_at(action: str, argv: Sequence[str]) -> int:
    args = gke_arguments.read_look(action, argv)
    return ACTIONS[action](gke_arguments.name(args), gke_arguments.place(args), args)


def _submit(argv: Sequence[str]) -> int:
    args, rest = gke_arguments.read(argv, __doc__ or "")
    place = gke_arguments.place(args)
    planned = plan(gke_arguments.job(args, rest), place)
    if args.dry_run:
        print(planned)
        return exits.DONE
    submit(planned)
    which = f"--name={args.name}" if args.name else f"--workdir={args.workdir}"
    status = shlex.join(("python", "-m", "launch", "gke", "status", which, *place))
    say(f"submitted {planned.manifest['metadata']['name']}; look at it with: {status}")
    return exits.DONE
