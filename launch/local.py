"""Runs a job as N processes on this machine, and starts it again while that helps."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launch import arguments, exits
from launch.job import Job, free_port, logs_of, plan, run
from launch.process import say

_EPILOG = """\
All other arguments go to `jaxlm train` as they are: --config=FILE, --config.a.b=VALUE ...

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


def main(argv: Sequence[str]) -> int:
    """`python -m launch local ARGUMENTS`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m launch local",
        usage="%(prog)s --processes=N --workdir=DIR --config=FILE [--config.a.b=VALUE ...]",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--processes", type=arguments.whole(1), default=1, metavar="N", help="default 1"
    )
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="of the run, a path or gs://, s3://"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="of the processes' output; default: WORKDIR/logs, of a URL runs/ITS-LAST-PART/logs",
    )
    parser.add_argument(
        "--max-restarts",
        type=arguments.whole(0),
        default=Job.max_restarts,
        metavar="K",
        help="give up after K restarts without progress (default %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be run")
    args, rest = arguments.split(parser, argv)
    train = (sys.executable, "-m", "jaxlm", "train", f"--workdir={args.workdir}", *rest)
    logs = args.logs or logs_of(args.workdir)
    job = Job(train, args.workdir, logs, args.processes, max_restarts=args.max_restarts)
    if args.dry_run:
        for spec in plan(job, free_port()):
            print(shlex.join(spec.command))
        return exits.DONE
    try:
        return run(job)
    except OSError as e:
        say(f"{e.filename or args.workdir}: {e.strerror}; choose a --workdir that can be written")
        return exits.ENVIRONMENT
