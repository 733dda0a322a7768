"""The command line of the launcher of TPU VMs, and what is wrong with it."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch import arguments, machines
from launch.foreground import add_lines
from launch.job import Job, logs_of
from launch.queued import Request

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]"), "a zone, as us-east5-b"
_SET = ("--zone", "--project", "--node-id", "--node-count", "--node-prefix", "--accelerator-type")
_SET += ("--runtime-version", "--labels", "--description", "--scopes", "--async", "--spot")
"""Flags of gcloud that the launcher gives itself."""

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train` as they are: --config.a.b=VALUE ...
Config files are read in the container: they must be in the image.

  python -m launch tpu-vm status --workdir=URL --zone=ZONE             queue, machines
  python -m launch tpu-vm logs --workdir=URL --zone=ZONE --process=N   output of a process
  python -m launch tpu-vm stop --workdir=URL --zone=ZONE               all save; it is deleted

signals   SIGTERM, SIGINT or, without nohup, SIGHUP: every process saves and ends, and the machines
          are deleted; a second one, 2 s later or more, does not wait for the saves
restarts  as `python -m launch local`; machines that were taken away are asked for again, and such
          a restart does not count
machines  are deleted at the end, whatever it is, unless --keep; a launcher that was killed leaves
          them running: start it again, or stop the run
needs     quota, an image, a bucket: docs/clusters.md

exit code: 0 done, 2 wrong usage, config or data, 75 start me again, 78 gcloud or the API refuses
"""


@dataclass(frozen=True)
class Run:
    """What is to be run."""

    request: Request
    image: str
    workdir: str
    train: tuple[str, ...]
    """Arguments of `jaxlm train`, without --workdir."""
    logs: Path
    grace_s: int = 120
    """From SIGTERM until the program has saved."""
    max_restarts: int = Job.max_restarts
    setup: tuple[str, ...] = ()
    """Lines of shell on each worker, ahead of all else."""
    ssh: tuple[str, ...] = ()
    """More flags of `gcloud compute tpus tpu-vm ssh`."""
    keep: bool = False
    """Whether the machines stay."""
    poll_s: float = 30.0


def read(argv: Sequence[str], description: str) -> tuple[argparse.Namespace, list[str]]:
    """Of running: its own arguments, and those for `jaxlm train`. Ends where they are wrong."""
    parser = _parser(description)
    args, rest = arguments.split(parser, argv)
    arguments.check_grace(parser, rest, "the container")
    return args, rest


def read_look(action: str, argv: Sequence[str]) -> argparse.Namespace:
    """Of status, logs and stop. Ends where they are wrong."""
    parser = arguments.Parser(f"tpu-vm {action}")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--workdir", metavar="URL", help="of the run")
    which.add_argument("--name", metavar="NAME", help="of the queued resource, if it was given one")
    _add_place(parser)
    if action == "logs":
        number = arguments.whole(0)
        parser.add_argument("--process", type=number, default=0, metavar="N", help="default 0")
        add_lines(parser)
    if action == "stop":
        _add_grace(parser)
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir or ""])
    return args


def place(args: argparse.Namespace) -> Request:
    """The queued resource that is meant; `ValueError` for one that cannot be."""
    made = args.name or arguments.name_of(arguments.checked_url(args.workdir, "TPU VMs"))
    if not _ZONE[0].fullmatch(args.zone):
        raise ValueError(f"--zone={args.zone}: must be {_ZONE[1]}")
    _check_flags("--ssh", args.ssh, ("--zone", "--project", "--worker", "--command"))
    return Request(
        arguments.checked(arguments.NAME, "--name", made), args.zone, project=args.project
    )


def run(args: argparse.Namespace, rest: Sequence[str]) -> Run:
    """What is to be run; `ValueError` where values cannot be, or not together."""
    workdir = arguments.checked_url(args.workdir, "TPU VMs")
    where = place(args)
    target = machines.parse(args.accelerator)
    accelerator_type = target.accelerator_type
    assert target.machine.tpu_vm is not None
    _check_flags("--gcloud", args.gcloud, _SET)
    account = (f"--service-account={args.service_account}",) if args.service_account else ()
    wait = (f"--valid-until-duration={args.wait}",) if args.wait else ()
    request = Request(
        name=where.name,
        zone=where.zone,
        accelerator_type=accelerator_type,
        runtime=args.runtime_version or target.machine.tpu_vm.runtime,
        slices=args.slices,
        workdir=workdir,
        project=where.project,
        more=(
            *(["--spot"] if args.spot else []),
            *(["--reserved"] if args.reserved else []),
            *(*account, *wait, *args.gcloud),
        ),
    )
    return Run(
        request=request,
        image=arguments.checked_image(args.image),
        workdir=workdir,
        train=(f"--config={args.config}", f"{arguments.GRACE}={args.grace_seconds}", *rest),
        logs=args.logs or logs_of(workdir),
        grace_s=args.grace_seconds,
        max_restarts=args.max_restarts,
        setup=tuple(args.setup),
        ssh=tuple(args.ssh),
        keep=args.keep,
        poll_s=args.poll_seconds,
    )


def _check_flags(name: str, flags: Sequence[str], taken: Sequence[str]) -> None:
    for flag in flags:
        if not re.match("--[a-z]", flag):
            raise ValueError(f"{name}={flag}: is no flag of gcloud; write {name}=--FLAG=VALUE")
        if flag.partition("=")[0] in taken:
            raise ValueError(f"{name}={flag}: the launcher sets that flag itself; remove it")


def _parser(description: str) -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "tpu-vm",
        usage="--accelerator=v6e:16x16 --zone=ZONE --config=FILE --workdir=URL --image=IMAGE ...",
        description=description,
        epilog=_EPILOG,
    )
    add, number = parser.add_argument, arguments.whole
    chips = ", ".join(name for name, machine in machines.MACHINES.items() if machine.tpu_vm)
    add("--accelerator", required=True, metavar="CHIP:SHAPE", help=f"v6e:16x16; known: {chips}")
    add("--slices", type=number(1), default=1, metavar="N", help="of that shape (default 1)")
    add("--config", required=True, metavar="FILE", help="in the image: FILE.py or FILE.py:TARGET")
    add("--workdir", required=True, metavar="URL", help="of the run: gs:// or s3://")
    add("--image", required=True, help="with a tag or digest, of a registry that the VMs can read")
    add("--name", default="", help="of the queued resource; default: made from --workdir")
    _add_place(parser)
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--spot", action="store_true", help="spot machines")
    tier.add_argument("--reserved", action="store_true", help="machines of a reservation")
    add("--runtime-version", default="", metavar="NAME", help="of the VMs; default: the chip's")
    add("--service-account", default="", metavar="EMAIL", help="of the VMs, with bucket rights")
    waiting = "in the queue at most, as 6h; default: until they are there"
    add("--wait", default="", metavar="TIME", help=waiting)
    _add_grace(parser)
    restarts = "give up after K restarts without progress (default %(default)s)"
    add("--max-restarts", type=number(0), default=Run.max_restarts, metavar="K", help=restarts)
    setup = "line of shell on each worker ahead of all else; may be repeated"
    add("--setup", action="append", default=[], metavar="LINE", help=setup)
    more = "for creating the queued resource, as --gcloud=--network=NAME; may be repeated"
    add("--gcloud", action="append", default=[], metavar="FLAG", help=more)
    add("--keep", action="store_true", help="do not delete the machines at the end")
    add("--logs", type=Path, metavar="DIR", help="here; default: runs/ITS-LAST-PART/logs")
    seconds = "between looks at the queue (default %(default).0f)"
    add("--poll-seconds", type=number(1), default=Run.poll_s, metavar="S", help=seconds)
    add("--dry-run", action="store_true", help="print what would be run, as a shell script")
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zone", required=True, help="of the machines, as us-east5-b")
    parser.add_argument("--project", default="", help="default: gcloud's own")
    more = "for connecting to the VMs, as --ssh=--internal-ip; may be repeated"
    parser.add_argument("--ssh", action="append", default=[], metavar="FLAG", help=more)


def _add_grace(parser: argparse.ArgumentParser) -> None:
    seconds = "from SIGTERM until it has saved (default %(default)s)"
    whole = arguments.whole(1)
    parser.add_argument(
        "--grace-seconds", type=whole, default=Run.grace_s, metavar="S", help=seconds
    )
