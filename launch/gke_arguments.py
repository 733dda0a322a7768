"""The command line of the launcher of GKE, and what is wrong with it."""

import argparse
from collections.abc import Sequence

from launch import arguments, jobset, machines
from launch.foreground import add_lines
from launch.jobset import Job

_LONGEST_NAME = 40
"""Of a JobSet: a pod's name adds index of Job and pod, and five letters, and has 63 at most."""

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


def read(argv: Sequence[str], description: str) -> tuple[argparse.Namespace, list[str]]:
    """Of submitting: its own arguments, and those for `jaxlm train`. Ends where they are wrong."""
    parser = _parser(description)
    args, rest = arguments.split(parser, argv)
    arguments.check_grace(parser, rest, "Kubernetes")
    return args, rest


def read_look(action: str, argv: Sequence[str]) -> argparse.Namespace:
    """Of status, logs and stop. Ends where they are wrong."""
    parser = arguments.Parser(f"gke {action}")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--workdir", metavar="URL", help="of the run")
    which.add_argument("--name", metavar="NAME", help="of the JobSet, if it was given one")
    _add_place(parser)
    if action == "logs":
        number = arguments.whole(0)
        parser.add_argument("--process", type=number, default=0, metavar="N", help="default 0")
        add_lines(parser)
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir or ""])
    return args


def name(args: argparse.Namespace) -> str:
    """Of the JobSet that is meant; `ValueError` for one that cannot be."""
    made = args.name or arguments.name_of(arguments.checked_url(args.workdir, "pods"))
    return arguments.checked(arguments.NAME, "--name", made, _LONGEST_NAME)


def job(args: argparse.Namespace, rest: Sequence[str]) -> Job:
    """What is to be run; `ValueError` where values cannot be, or not together."""
    workdir = arguments.checked_url(args.workdir, "pods")
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
    return Job(
        name=name(args),
        target=target,
        image=arguments.checked_image(args.image),
        workdir=workdir,
        train=(f"--config={args.config}", f"{arguments.GRACE}={args.grace_seconds}", *rest),
        slices=args.slices,
        spot=args.spot,
        queue=arguments.checked(arguments.OTHER_NAME, "--queue", args.queue),
        service_account=arguments.checked(
            arguments.OTHER_NAME, "--service-account", args.service_account
        ),
        grace_s=args.grace_seconds,
        max_restarts=args.max_restarts,
        disk_gb=args.disk_gb,
    )


def _parser(description: str) -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "gke",
        usage="--accelerator=v5p:4x4x8 --config=FILE --workdir=URL --image=IMAGE ...",
        description=description,
        epilog=_EPILOG,
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


def place(args: argparse.Namespace) -> list[str]:
    """Flags of kubectl that say where."""
    namespace = arguments.checked(arguments.OTHER_NAME, "--namespace", args.namespace)
    return [
        *([f"--context={args.context}"] if args.context else []),
        *([f"--namespace={namespace}"] if namespace else []),
    ]
