"""The launcher on each host of a job: finds out which process is this host's, and runs it.

Started by Slurm, a JobSet, ssh, or by hand with the same command and another --process on each
host.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launch import arguments, exits
from launch.job import Job, log_of, logs_of, run
from launch.place import PLACES, Place
from launch.process import Spec, explained, say

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train` as they are: --config=FILE ...

place     --place=slurm|jobset|tpu-vm asks what runs the job; else --coordinator=HOST:PORT,
          --processes=N and --process=I say it
output    of the process, as it is; in WORKDIR/logs/process-I.log too, which is rotated
restarts  after exit code 75 or a death by signal, as `python -m launch local`; each host by the
          same rule, so that they meet again. Not with --once, under Slurm, and in a JobSet, where
          somebody else starts all hosts again.
"""


def plan(place: Place, workdir: str, logs: Path, train: Sequence[str]) -> Spec:
    """This host's process."""
    program = (sys.executable, "-m", "jaxlm", "train", f"--workdir={workdir}", *train)
    return Spec(place.process, (*program, *place.flags), log_of(place.process, logs))


def main(argv: Sequence[str]) -> int:
    """`python -m launch host ARGUMENTS`; returns the exit code."""
    parser = _parser()
    args, rest = arguments.split(parser, argv)
    logs = args.logs or logs_of(args.workdir)
    try:
        spec = plan(_place(args), args.workdir, logs, rest)
        job = Job(
            workdir=args.workdir,
            logs=logs,
            specs=lambda: [spec],
            once=args.once or args.place in ("slurm", "jobset"),
            tells=args.tell,
            listens=args.listen,
            max_restarts=args.max_restarts,
        )
    except ValueError as e:
        parser.error(str(e))
    if args.dry_run:
        print(shlex.join(spec.command))
        return exits.DONE
    try:
        return run(job)
    except OSError as e:
        say(explained(e, args.workdir))
        return exits.ENVIRONMENT


def _place(args: argparse.Namespace) -> Place:
    """`ValueError` if it cannot be told."""
    if args.place is not None:
        if args.coordinator or args.processes != 1 or args.process != 0:
            raise ValueError(f"--place={args.place} says what --coordinator and others would")
        return PLACES[args.place]()
    if args.process >= args.processes:
        raise ValueError(f"--process={args.process}: --processes={args.processes}, counted from 0")
    if args.processes > 1 and not args.coordinator:
        raise ValueError(f"--processes={args.processes} needs --coordinator=HOST:PORT")
    return Place(args.process, args.processes, args.coordinator, args.bind)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "host",
        usage="[--place=WHAT] --workdir=DIR --config=FILE [--config.a.b=VALUE ...]",
        description=__doc__ or "",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--place", choices=sorted(PLACES), help="what runs the job, and says which process this is")
    add("--coordinator", default="", metavar="HOST:PORT", help="of process 0")
    add("--bind", default="", metavar="ADDRESS", help="where process 0 listens; default everywhere")
    add("--processes", type=arguments.whole(1), default=1, metavar="N", help="default 1")
    add("--process", type=arguments.whole(0), default=0, metavar="I", help="default 0")
    add("--workdir", required=True, metavar="DIR", help="of the run, a path or gs://, s3://")
    add("--logs", type=Path, metavar="DIR", help="default: WORKDIR/logs, of a URL runs/NAME/logs")
    add("--once", action="store_true", help="do not start the process again")
    add("--tell", action="store_true", help="say how it ended, for the launcher of all hosts")
    listen = "take signals by name on standard input, a line each; its end is SIGTERM"
    add("--listen", action="store_true", help=listen)
    add(
        "--max-restarts",
        type=arguments.whole(0),
        default=Job.max_restarts,
        metavar="K",
        help="give up after K restarts without progress (default %(default)s)",
    )
    add("--dry-run", action="store_true", help="print what would be run")
    return parser
