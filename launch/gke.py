"""Runs a job on Google Kubernetes Engine: a JobSet, submitted, looked at and stopped by kubectl.

The manifest is JSON: kubectl takes it as it takes YAML, and nothing needs to be installed here for
it. The JobSet's name is made from the work directory, so that nothing is stored: the same
--workdir finds it again.
"""

import argparse
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlm import storage
from launch import arguments, exits, jobset, kubectl, machines, pods
from launch.jobset import Job
from launch.process import say

_LONGEST_NAME = 40
"""Of a JobSet: a pod's name adds index of Job and pod, and five letters, and has 63 at most."""
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?P<version>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)
_NAMES = (
    re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?"),
    "lower case letters, digits and -, from a letter on",
)
_OTHERS = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"), "lower case letters, digits, - and ."
_GRACE = "--config.watch.grace_seconds"

_EPILOG = f"""\
All other arguments, or those after --, go to `jaxlm train` as they are: --config.a.b=VALUE ...
Config files are read in the pods: they must be in the image.

  python -m launch gke status --workdir=URL             pods, restarts, what is waited for
  python -m launch gke logs --workdir=URL --process=N   output of a process
  python -m launch gke stop --workdir=URL               every process saves and ends

failures  exit codes 2 and 78 of a pod end the job at once; anything else starts all pods again,
          --max-restarts times; preempted machines do not count. Submitting again goes on from the
          newest checkpoint, on another --accelerator too.
needs     a cluster with such node pools and JobSet {jobset.OLDEST} or later: docs/clusters.md

exit code: 0 submitted, 2 wrong usage, 78 kubectl or the cluster refuses
"""


@dataclass(frozen=True)
class Plan:
    """What submitting does, as plain data."""

    manifest: dict[str, Any]
    look: tuple[str, ...]
    """Prints the JobSet of that name, if there is one."""
    clear: tuple[str, ...]
    """Deletes one that has ended."""
    create: tuple[str, ...]
    """Takes the manifest on its standard input."""

    def __str__(self) -> str:
        """As a shell script."""
        return (
            f"{shlex.join(self.look)}\n"
            f"# goes on if that prints nothing; one that has ended is deleted first:\n"
            f"# {shlex.join(self.clear)}\n"
            f"{shlex.join(self.create)} <<'EOF'\n{json.dumps(self.manifest, indent=2)}\nEOF"
        )


def plan(job: Job, place: Sequence[str] = ()) -> Plan:
    """`place`: flags of kubectl that say where, `--namespace=...`; none: where it is set to."""
    return Plan(
        manifest=jobset.manifest(job),
        look=_look(job.name, place),
        clear=_delete(job.name, place, job.grace_s + jobset.MARGIN_S),
        create=("kubectl", "create", *place, kubectl.REQUEST, "--validate=strict", "--filename=-"),
    )


def submit(planned: Plan) -> None:
    """Creates the JobSet, in place of one that has ended.

    `ValueError` if one of that name runs, `kubectl.Refused` if kubectl does not do it.
    """
    found = kubectl.read(planned.look)
    if found is not None:
        name, state = _own(found)["metadata"]["name"], pods.state(found)
        if state not in pods.ENDED:
            raise ValueError(f"{name} is there already, {state}; stop it first, or wait for it")
        kubectl.call(planned.clear)
    kubectl.call(planned.create, json.dumps(planned.manifest))


def _look(name: str, place: Sequence[str]) -> tuple[str, ...]:
    flags = ("--ignore-not-found", "--output=json")
    return ("kubectl", "get", "jobset", name, *place, kubectl.REQUEST, *flags)


def _delete(name: str, place: Sequence[str], grace_s: int) -> tuple[str, ...]:
    """Returns when the pods are gone, that is when they have saved."""
    flags = ("--cascade=foreground", "--wait=true", f"--timeout={grace_s + 60}s")
    return ("kubectl", "delete", "jobset", name, *place, *flags)


# ---- looking at a job, and stopping it -----------------------------------------------------------


def _status(name: str, place: Sequence[str], args: argparse.Namespace) -> int:
    found = _found(name, place)
    selector = f"--selector={jobset.NAME_LABEL}={name}"
    command = ("kubectl", "get", "pods", *place, kubectl.REQUEST, selector, "--output=json")
    for line in pods.lines(found, (kubectl.read(command) or {}).get("items", [])):
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
    follow = ["--follow"] if args.follow else [kubectl.REQUEST]
    code = kubectl.show(("kubectl", "logs", *place, *flags, *follow))
    return exits.DONE if code == 0 else exits.ENVIRONMENT


def _stop(name: str, place: Sequence[str], args: argparse.Namespace) -> int:
    job = _found(name, place)["spec"]["replicatedJobs"][0]["template"]["spec"]
    grace_s = job["template"]["spec"].get("terminationGracePeriodSeconds", 30)
    say(f"stopping {name}: every process saves and ends, within {grace_s} s")
    kubectl.call(_delete(name, place, grace_s), wait_s=grace_s + 120.0)
    say(f"{name} is stopped; submitting it again goes on from its newest checkpoint")
    return exits.DONE


def _found(name: str, place: Sequence[str]) -> dict[str, Any]:
    found = kubectl.read(_look(name, place))
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
    try:
        if argv and argv[0] in ACTIONS:
            return _look_at(argv[0], argv[1:])
        return _submit(argv)
    except ValueError as e:
        say(str(e))
        return exits.USAGE
    except kubectl.Refused as e:
        say(str(e))
        return exits.ENVIRONMENT


def _look_at(action: str, argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m launch gke {action}", allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--workdir", metavar="URL", help="of the run")
    which.add_argument("--name", metavar="NAME", help="of the JobSet, if it was given one")
    _add_place(parser)
    if action == "logs":
        number = arguments.whole(0)
        parser.add_argument("--process", type=number, default=0, metavar="N", help="default 0")
        parser.add_argument("--lines", type=number, default=200, metavar="N", help="the last N")
        parser.add_argument("--follow", action="store_true", help="and those to come")
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir or ""])
    name = args.name or arguments.name_of(_checked_workdir(args.workdir))
    return ACTIONS[action](_checked(_NAMES, "--name", name), _place(args), args)


def _submit(argv: Sequence[str]) -> int:
    parser = _parser()
    cut = argv.index("--") if "--" in argv else len(argv)
    args, rest = parser.parse_known_args(argv[:cut])
    rest += argv[cut + 1 :]
    arguments.refuse_places(parser, rest, (*arguments.PLACES, "--processes"))
    arguments.check_urls(parser, [args.workdir, *rest])
    for argument in rest:
        if argument.partition("=")[0] == _GRACE:
            parser.error(f"{_GRACE}: use --grace-seconds, which tells Kubernetes too")
    place = _place(args)
    planned = plan(_job(args, rest), place)
    if args.dry_run:
        print(planned)
        return exits.DONE
    submit(planned)
    which = f"--name={args.name}" if args.name else f"--workdir={args.workdir}"
    status = shlex.join(("python", "-m", "launch", "gke", "status", which, *place))
    say(f"submitted {planned.manifest['metadata']['name']}; look at it with: {status}")
    return exits.DONE


def _job(args: argparse.Namespace, rest: Sequence[str]) -> Job:
    workdir = _checked_workdir(args.workdir)
    target = machines.parse(args.accelerator)
    whole = target.machine.chips
    if not target.is_tpu and target.chips_per_host < whole:
        raise ValueError(
            f"--accelerator={args.accelerator}: a {target.machine_type} of GKE has {whole} GPUs, "
            f"and is used whole; use {target.machine.name}:{target.hosts}x{whole}"
        )
    if args.slices > 1 and not target.is_tpu:
        nodes = target.hosts * args.slices
        raise ValueError(
            f"--slices={args.slices}: slices are of TPUs; write more nodes, as "
            f"--accelerator={target.machine.name}:{nodes}x{whole}"
        )
    if args.slices > 1 and target.hosts == 1:
        raise ValueError(
            f"--slices={args.slices} of {target}: GKE joins slices of several hosts only; use a "
            "larger slice"
        )
    flags = [f"--config={args.config}", f"--workdir={workdir}", f"{_GRACE}={args.grace_seconds}"]
    return Job(
        name=_checked(_NAMES, "--name", args.name or arguments.name_of(workdir), _LONGEST_NAME),
        target=target,
        image=_checked_image(args.image),
        workdir=workdir,
        train=(*flags, *rest),
        slices=args.slices,
        spot=args.spot,
        queue=_checked(_OTHERS, "--queue", args.queue),
        service_account=_checked(_OTHERS, "--service-account", args.service_account),
        grace_s=args.grace_seconds,
        max_restarts=args.max_restarts,
        disk_gb=args.disk_gb,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m launch gke",
        usage="%(prog)s --accelerator=v5p:4x4x8 --config=FILE --workdir=URL --image=IMAGE ...",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    chips = f"{machines.EXAMPLES}; known: {', '.join(machines.MACHINES)}"
    add("--accelerator", required=True, metavar="CHIP:SHAPE", help=chips)
    add("--slices", type=arguments.whole(1), default=1, metavar="N", help="TPU slices (default 1)")
    add("--config", required=True, metavar="FILE", help="in the image: FILE.py or FILE.py:TARGET")
    add("--workdir", required=True, metavar="URL", help="of the run: gs:// or s3://")
    add("--image", required=True, help="with a tag or digest, of a registry that nodes can read")
    add("--spot", action="store_true", help="on spot machines")
    add("--queue", default="", metavar="NAME", help="Kueue's LocalQueue")
    add("--service-account", default="", metavar="NAME", help="of Kubernetes, with bucket rights")
    add("--name", default="", help="of the JobSet; default: made from --workdir")
    seconds = "from SIGTERM until it has saved (default %(default)s)"
    add("--grace-seconds", type=arguments.whole(1), default=Job.grace_s, metavar="S", help=seconds)
    restarts = "after failures, in all (default %(default)s)"
    add("--max-restarts", type=arguments.whole(0), default=Job.max_restarts, help=restarts)
    disk = "of each node, for shards of the corpus: config.cache.max_gb and some (%(default)s)"
    add("--disk-gb", type=arguments.whole(1), default=Job.disk_gb, metavar="GB", help=disk)
    _add_place(parser)
    add("--dry-run", action="store_true", help="print what would be run, as a shell script")
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="", help="default: kubectl's own")
    parser.add_argument("--context", default="", help="kubectl's name of the cluster")


def _place(args: argparse.Namespace) -> list[str]:
    namespace = _checked(_OTHERS, "--namespace", args.namespace)
    return [
        *([f"--context={args.context}"] if args.context else []),
        *([f"--namespace={namespace}"] if namespace else []),
    ]


def _checked_workdir(workdir: str) -> str:
    if not storage.is_url(workdir):
        raise ValueError(
            f"--workdir={workdir}: pods share no disk; write gs://BUCKET/PATH or s3://BUCKET/PATH"
        )
    return workdir


def _checked(rule: tuple[re.Pattern[str], str], flag: str, name: str, longest: int = 63) -> str:
    """A name of Kubernetes; empty where the flag was not given."""
    pattern, words = rule
    if name and (len(name) > longest or not pattern.fullmatch(name)):
        raise ValueError(f"{flag}={name}: must be {words}, {longest} at most")
    return name


def _checked_image(image: str) -> str:
    found = _IMAGE.fullmatch(image)
    if not found:
        raise ValueError(
            f"--image={image}: is no name of an image; write "
            "REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG"
        )
    if not found["digest"] and found["version"] in (None, ":latest"):
        raise ValueError(
            f"--image={image}: may be another image at each start; name a tag, or a digest"
        )
    return image
