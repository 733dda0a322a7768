"""Runs a job on Google's TPU VMs, by gcloud, which are asked for and given back.

Asks for a queued resource, waits until it is there, has each of its workers run `python -m launch
host` in a container, and deletes it at the end. The launcher stays in the foreground, as `python -m
launch local` does, and starts the job again while that helps; machines that are taken away are
asked for again. Nothing is stored: the name is made from the work directory, and a launcher that
finds a queued resource of its own takes it over.

How gcloud 528 behaves, which this is made for: `tpu-vm ssh --worker=all` connects to all workers at
once, and runs the command again where a connection is lost; `queued-resources ssh` runs it on 64
workers at a time, which would wait for the others.
"""

import argparse
import functools
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launch import arguments, exits, foreground, queued, tpu_vm_arguments
from launch.exits import OF_ALL
from launch.gcloud import GCLOUD
from launch.job import Job, log_of
from launch.process import Spec, say
from launch.queued import Request, Resource
from launch.tool import Refused
from launch.tpu_vm_arguments import Run

MARGIN_S = 30
"""Between the end of the program's own time to save and SIGKILL."""
CACHE = "/cache"
"""Where the container sees the machine's disk."""
_SSH = tuple(
    f"--ssh-flag=-o{option}"
    for option in ("ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=4")
)
"""A machine that is gone is noticed within a minute."""
_TOKEN = (
    "curl --silent --show-error --fail --header Metadata-Flavor:Google http://metadata.google."
    "internal/computeMetadata/v1/instance/service-accounts/default/token"
    """ | sed 's/.*"access_token": *"\\([^"]*\\)".*/\\1/'"""
)
"""Prints one for the machine's service account."""


@dataclass(frozen=True)
class Plan:
    """What running a job does, as plain data: command lines."""

    request: Request
    prepare: tuple[str, ...]
    """Ahead of each attempt: the image is there, and a new container; an old one has ended."""
    attempt: tuple[str, ...]
    """Starts the containers, and lasts as long as they do."""
    signal: tuple[str, ...]
    """Sends a signal to what runs in them."""

    def __str__(self) -> str:
        """As a shell script."""
        request = self.request
        return "\n".join(
            (
                "# Looks first; one of its own is taken over, and then not made.",
                shlex.join(request.create),
                f"until {shlex.join(request.look)} | grep -q '\"ACTIVE\"'; do sleep 30; done",
                "# Ahead of each attempt:",
                shlex.join(self.prepare),
                "# An attempt:",
                shlex.join(self.attempt),
                "# To stop it, with TERM:",
                *(f"# {line}" for line in shlex.join(self.signal).splitlines()),
                "# At the end, and before it is asked for again where it was taken away:",
                shlex.join(request.delete),
            )
        )


def plan(run: Run) -> Plan:
    """The command lines of a run."""
    request, name = run.request, run.request.name
    return Plan(
        request=request,
        prepare=on_all(request, run.ssh, _prepare(run)),
        attempt=on_all(request, run.ssh, _attempt(name)),
        signal=on_all(request, run.ssh, f"sudo docker kill --signal={{signal}} {name} >/dev/null"),
    )


def on_all(request: Request, flags: Sequence[str], script: str) -> tuple[str, ...]:
    """A command that runs lines of shell on all workers of all slices at once.

    It lasts as long as the longest, and fails if one does.
    """
    if request.slices == 1:
        return _ssh(request, request.name, "all", flags, script)
    each = shlex.join(_ssh(request, "$node", "all", flags, script)).replace("'$node'", '"$node"')
    return (
        *("bash", "-c"),
        f'for node in {" ".join(request.nodes)}; do {each} & pids="$pids $!"; done; '
        'code=0; for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"',
    )


def _ssh(
    request: Request, node: str, worker: str, flags: Sequence[str], script: str
) -> tuple[str, ...]:
    ssh = ("gcloud", "compute", "tpus", "tpu-vm", "ssh", node, *request.where)
    return (*ssh, f"--worker={worker}", *_SSH, *flags, f"--command={script}")


def _prepare(run: Run) -> str:
    """A container of an attempt before saves and ends: it may have lost its launcher."""
    name = run.request.name
    registry = run.image.partition("/")[0]
    login = f"{_TOKEN} | sudo docker login --username=oauth2accesstoken --password-stdin {registry}"
    host = ("python", "-m", "launch", "host", "--place=tpu-vm", "--once", "--tell")
    create = (
        *("sudo", "docker", "create", f"--name={name}", "--privileged", "--net=host"),
        *("--log-opt=max-size=64m", "--log-opt=max-file=2"),
        *(f"--volume=/var/cache/jaxlm:{CACHE}", f"--env=XDG_CACHE_HOME={CACHE}", run.image),
        *(*host, f"--workdir={run.workdir}", "--", *run.train),
    )
    lines = (
        "set -e",
        *run.setup,
        f"{_stop(name, run.grace_s)} || true",
        f"sudo docker rm --force {name} >/dev/null 2>&1 || true",
        *([f"{login} >/dev/null"] if _is_googles(registry) else []),
        f"sudo docker pull --quiet {run.image} >/dev/null",
        f"{shlex.join(create)} >/dev/null",
    )
    return "\n".join(lines)


def _is_googles(registry: str) -> bool:
    return registry.endswith(("-docker.pkg.dev", "gcr.io"))


def _stop(name: str, grace_s: int) -> str:
    return f"sudo docker stop -t {grace_s + MARGIN_S} {name} >/dev/null 2>&1"


def _attempt(name: str) -> str:
    """May be run again after a lost connection: it then follows what it has started."""
    lines = (
        f"case $(sudo docker inspect --format={{{{.State.Status}}}} {name}) in created)",
        f"sudo docker start {name} >/dev/null || exit {exits.ENVIRONMENT};; esac",
        f"sudo docker logs --follow --tail=100 {name}",
        f"code=$(sudo docker wait {name}) || exit {exits.RESTART}",
        'exit "$code"',
    )
    return "\n".join(lines)


def run(what: Run) -> int:
    """Runs it to its end; returns the exit code. What it has made is deleted, unless kept.

    `Refused` if the machines are not to be had, `ValueError` if their name is taken, or its
    launcher is running here.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # outside of the job, as a Ctrl-C
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    planned = plan(what)
    resource = Resource(what.request, planned.prepare, what.poll_s)
    resource.check()
    workers = Spec(OF_ALL, planned.attempt, log_of(OF_ALL, what.logs), planned.signal)
    job = Job(
        workdir=what.workdir,
        logs=what.logs,
        specs=lambda: [workers],
        before=resource.ready,
        max_restarts=what.max_restarts,
    )
    try:
        return foreground.run(job)
    except KeyboardInterrupt:
        return exits.RESTART
    finally:
        if what.keep:
            resource.keep()
        else:
            resource.close()


# ---- looking at a job, and stopping it -----------------------------------------------------------


def _status(request: Request, args: argparse.Namespace) -> int:
    found = _found(request)
    accelerator_type, slices = queued.kind(found)
    print(f"{request.name}: {queued.state(found)}, {slices} x {accelerator_type}")
    if queued.state(found) == "FAILED":
        print(f"  {queued.why_failed(found)}")
    for node in _with_slices(request, found).nodes:
        try:
            about = GCLOUD.read(_describe_node(request, node))
            health = f", {about['health']}" if "health" in about else ""
            print(f"{node}: {about.get('state')}{health}, {_workers(about)} workers")
        except Refused as e:
            if "NOT_FOUND" not in str(e):
                raise
            print(f"{node}: {queued.NONE}")
    workdir = found["tpu"]["nodeSpec"][0]["node"].get("description")
    if workdir:
        print(f"where the run is: jaxlm status --workdir={workdir}")
    return exits.DONE


def _logs(request: Request, args: argparse.Namespace) -> int:
    request = _with_slices(request, _found(request))
    each = _workers(GCLOUD.read(_describe_node(request, request.nodes[0])))
    if args.process >= each * request.slices:
        raise ValueError(
            f"--process={args.process}: {request.name} has {each * request.slices}, counted from 0"
        )
    at, worker = divmod(args.process, each)
    follow = " --follow" if args.follow else ""
    script = f"sudo docker logs --tail={args.lines}{follow} {request.name}"
    code = GCLOUD.show(_ssh(request, request.nodes[at], str(worker), args.ssh, script))
    return exits.DONE if code == 0 else exits.ENVIRONMENT


def _stop_all(request: Request, args: argparse.Namespace) -> int:
    found = _found(request)
    request = _with_slices(request, found)
    if queued.state(found) == "ACTIVE":
        limit = args.grace_seconds + MARGIN_S
        say(f"stopping {request.name}: every process saves and ends, within {limit} s")
        # It is no failure that no container is there.
        script = f"{_stop(request.name, args.grace_seconds)} || ! sudo docker inspect " + (
            f"{request.name} >/dev/null 2>&1"
        )
        code = GCLOUD.show(on_all(request, args.ssh, script))
        if code and queued.state(queued.look(request)) == "ACTIVE":
            raise Refused(
                f"not all workers could be asked to save, so that {request.name} is left as it "
                f"is; to delete it all the same: {shlex.join(request.delete)}"
            )
    if queued.state(queued.look(request)) not in (queued.NONE, "DELETING"):
        try:
            GCLOUD.call(request.delete, wait_s=queued.DELETE_S)
        except Refused:
            if queued.state(queued.look(request)) not in (queued.NONE, "DELETING"):
                raise  # else its launcher was faster
    say(f"{request.name} is deleted; the command that made it goes on from its newest checkpoint")
    return exits.DONE


def _found(request: Request) -> dict:
    found = queued.look(request)
    if found is None:
        raise ValueError(
            f"there is no queued resource {request.name} in {request.zone}; it was never asked "
            "for, or deleted: --zone and --project say where, --name which"
        )
    return queued.own(found)


def _with_slices(request: Request, found: dict) -> Request:
    return Request(
        request.name, request.zone, slices=queued.kind(found)[1], project=request.project
    )


def _describe_node(request: Request, node: str) -> tuple[str, ...]:
    describe = ("gcloud", "compute", "tpus", "tpu-vm", "describe", node)
    return (*describe, *request.where, "--format=json")


def _workers(node: dict) -> int:
    return len(node.get("networkEndpoints", []))


ACTIONS: dict[str, Callable[[Request, argparse.Namespace], int]] = {
    "status": _status,
    "logs": _logs,
    "stop": _stop_all,
}


# ---- command line --------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """`python -m launch tpu-vm [status|logs|stop] ARGUMENTS`; returns the exit code."""
    actions = {name: functools.partial(_look_at, name) for name in ACTIONS}
    return arguments.act(argv, actions, _run)


def _look_at(action: str, argv: Sequence[str]) -> int:
    args = tpu_vm_arguments.read_look(action, argv)
    return ACTIONS[action](tpu_vm_arguments.place(args), args)


def _run(argv: Sequence[str]) -> int:
    args, rest = tpu_vm_arguments.read(argv, __doc__ or "")
    what = tpu_vm_arguments.run(args, rest)
    if args.dry_run:
        print(plan(what))
        return exits.DONE
    return run(what)
