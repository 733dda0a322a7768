"""Runs a job as N processes on this machine, and starts it again while that helps."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launch import arguments, exits, foreground
from launch.job import Job, free_port, log_of, logs_of
from launch.place import Place
from launch.process import Spec

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train`: --config=FILE, --config.a.b=VALUE ...

  python -m launch local status --workdir=DIR   whether it runs, and how far it is
  python -m launch local logs --workdir=DIR --process=N
  python -m launch local stop --workdir=DIR     every process saves and ends

output    process 0 as it is, the others after "[index] "; all of it in WORKDIR/logs/ or --logs
signals   SIGTERM, SIGINT or, without nohup, SIGHUP: every process saves and ends; a second one, 2 s
          later or more, kills at once; SIGUSR1 or SIGUSR2, ahead of an end: the same, with more
          time (config.watch)
failures  when a process dies the others are ended at once; the first failure is shown first
restarts  after exit code 75, a death by signal or a lost peer, 1, 2, 4 ... 60 s later, for as long
          as `position` in WORKDIR/status.json advances

exit code: 0 done, 2 wrong usage, config or data, 75 start me again, 78 wrong environment; any other
is a crash, a bug that a restart would only repeat. 2 and 78 win over 75.
"""


def plan(program: Sequence[str], logs: Path, processes: int, port: int) -> tuple[Spec, ...]:
    """Processes of a program; of several, each is told its place, and where they meet."""
    places = (Place(i, processes, f"127.0.0.1:{port}", "127.0.0.1") for i in range(processes))
    return tuple(
        Spec(place.process, (*program, *place.flags), log_of(place.process, logs))
        for place in places
    )


def main(argv: Sequence[str]) -> int:
    """`python -m launch local [status|logs|stop] ARGUMENTS`; returns the exit code."""
    return arguments.act(argv, foreground.actions("local", "process-{}.log"), _submit)


def _submit(argv: Sequence[str]) -> int:
    args, rest = arguments.split(_parser(), argv)
    train = (sys.executable, "-m", "jaxlm", "train", f"--workdir={args.workdir}", *rest)
    logs = args.logs or logs_of(args.workdir)

    def specs() -> tuple[Spec, ...]:
        return plan(train, logs, args.processes, free_port())

    if args.dry_run:
        for spec in specs():
            print(shlex.join(spec.command))
        return exits.DONE
    return foreground.run(Job(args.workdir, logs, specs, max_restarts=args.max_restarts))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "local",
        usage="--processes=N --workdir=DIR --config=FILE [--config.a.b=VALUE ...]",
        description=__doc__ or "",
        epilog=_EPILOG,
    )
    add, number = parser.add_argument, arguments.whole
    add("--processes", type=number(1), default=1, metavar="N", help="default 1")
    add("--workdir", required=True, metavar="DIR", help="of the run, a path or gs://, s3://")
    logs = "of the processes' output; default: WORKDIR/logs, of a URL runs/ITS-LAST-PART/logs"
    add("--logs", type=Path, metavar="DIR", help=logs)
    restarts = "give up after K restarts without progress (default %(default)s)"
    add("--max-restarts", type=number(0), default=Job.max_restarts, metavar="K", help=restarts)
    add("--dry-run", action="store_true", help="print what would be run")
    return parser
