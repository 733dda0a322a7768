"""Runs a job on a cluster with Slurm: a batch script, submitted, looked at and stopped by Slurm's
own commands.

The script's job runs `srun` over `python -m launch host` on all nodes, and starts it again while
that helps. Before the time limit, and when it is told to end, all processes save and the job goes
back into the queue. Its name is made from the work directory, so that nothing is stored.
"""

import argparse
import functools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch import arguments, exits
from launch.foreground import add_lines, show_log, show_status
from launch.job import Job, logs_of, run
from launch.process import say
from launch.tool import Refused, Tool

LOG = "slurm.log"
GONE = "not in the queue"
SLURM = Tool(missing="run this where jobs are submitted")

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train` as they are: --config.a.b=VALUE ...

  python -m launch slurm status --workdir=DIR   in the queue or not, and how far the run is
  python -m launch slurm logs --workdir=DIR     output of all nodes, with that of launchers
  python -m launch slurm stop --workdir=DIR     every process saves and ends, for good

The work directory, the corpus and this Python must be the same on all nodes. One process a node
has all of its GPUs.

exit code: 0 submitted, 2 wrong usage, 78 Slurm refuses
"""


@dataclass(frozen=True)
class Batch:
    """What is submitted."""

    name: str
    workdir: str
    logs: Path
    train: tuple[str, ...]
    """For `jaxlm train`, without --workdir."""
    nodes: int = 1
    gpus_per_node: int = 0
    processes_per_node: int = 1
    notice_s: int = 120
    """Before the time limit."""
    max_restarts: int = Job.max_restarts
    setup: tuple[str, ...] = ()
    """Lines of shell before all else, as `module load cuda`."""
    directives: tuple[str, ...] = ()
    """More of sbatch's own, as `--partition=gpu`."""


@dataclass(frozen=True)
class Plan:
    """What submitting does, as plain data."""

    command: tuple[str, ...]
    script: str
    """On its standard input."""

    def __str__(self) -> str:
        """As a shell script."""
        return f"{shlex.join(self.command)} <<'END'\n{self.script}END"


def plan(batch: Batch) -> Plan:
    """The batch script: it stays the same when the job is started again."""
    gpus = [f"--gpus-per-node={batch.gpus_per_node}"] if batch.gpus_per_node else []
    directives = [
        f"--job-name={batch.name}",
        f"--nodes={batch.nodes}",
        f"--ntasks-per-node={batch.processes_per_node}",
        *gpus,
        "--exclusive",
        "--requeue",
        f"--signal=B:USR1@{batch.notice_s}",
        "--open-mode=append",
        f"--output={shlex.quote(str(batch.logs.absolute() / LOG))}",
        f"--chdir={shlex.quote(str(Path.cwd()))}",
        *batch.directives,  # the last one counts
    ]
    step = (
        *(sys.executable, "-m", "launch", "slurm", "run"),
        *(f"--workdir={batch.workdir}", f"--logs={batch.logs.absolute()}"),
        *(f"--max-restarts={batch.max_restarts}", "--", *batch.train),
    )
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {directive}" for directive in directives),
        *batch.setup,
        f"exec {shlex.join(step)}",
    ]
    return Plan(("sbatch", "--parsable"), "\n".join(lines) + "\n")


def submit(planned: Plan, batch: Batch) -> str:
    """The number of the job. `ValueError` if one of that name is in the queue."""
    there = _queued(batch.name)
    if there:
        raise ValueError(f"{batch.name} is in the queue already, job {there[0]}; stop it first")
    try:
        batch.logs.mkdir(parents=True, exist_ok=True)  # Slurm does not, and the job would fail
    except OSError as e:
        raise Refused(f"{batch.logs}: cannot be made ({e.strerror}); choose --logs") from None
    return SLURM.call(planned.command, planned.script).strip().partition(";")[0]


def run_here(argv: Sequence[str]) -> int:
    """In the batch script: runs the job on all nodes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m launch slurm run", allow_abbrev=False)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--max-restarts", type=arguments.whole(0), required=True)
    cut = argv.index("--")
    args, train = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        raise ValueError("python -m launch slurm run: is for the script that `sbatch` takes")
    # One task has all CPUs of its node: no binding; --wait=0: the launcher ends the others.
    srun = ("srun", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0")
    host = (sys.executable, "-m", "launch", "host", "--place=slurm", "--tell")
    where = (f"--workdir={args.workdir}", f"--logs={args.logs}")
    job = Job(
        program=(*srun, *host, *where, "--", *train),
        workdir=args.workdir,
        logs=args.logs,
        of_all=True,
        signaller=("scancel", "--signal={signal}", number),
        after_stop=("scontrol", "requeue", number),
        max_restarts=args.max_restarts,
    )
    return run(job)


# ---- looking at a job, and stopping it -----------------------------------------------------------


def _status(name: str, args: argparse.Namespace) -> int:
    for number in _queued(name):
        line = SLURM.call(("squeue", "--noheader", f"--jobs={number}", "--format=%T %M of %l, %R"))
        print(f"{name}: job {number}, {line.strip()}")
    if not _queued(name):
        print(f"{name}: {GONE}")
    return show_status(args.workdir)


def _logs(name: str, args: argparse.Namespace) -> int:
    return show_log((args.logs or logs_of(args.workdir)) / LOG, args)


def _stop(name: str, args: argparse.Namespace) -> int:
    numbers = _queued(name)
    if not numbers:
        raise ValueError(f"{name}: {GONE}")
    for number in numbers:
        SLURM.call(("scontrol", "update", f"JobId={number}", "Requeue=0"))
        state = SLURM.call(("squeue", "--noheader", f"--jobs={number}", "--format=%T")).strip()
        # TERM comes to the processes and not to the script, which waits for them.
        running = ("--signal=TERM",) if state == "RUNNING" else ()
        SLURM.call(("scancel", *running, number))
        say(f"job {number}: every process saves and ends; submitting it again goes on from there")
    return exits.DONE


ACTIONS: dict[str, Callable[[str, argparse.Namespace], int]] = {
    "status": _status,
    "logs": _logs,
    "stop": _stop,
}


def _queued(name: str) -> list[str]:
    """Numbers of this user's jobs of that name."""
    user = SLURM.call(("id", "--user", "--name")).strip()
    command = ("squeue", "--noheader", f"--user={user}", f"--name={name}", "--format=%i")
    return SLURM.call(command).split()


# ---- command line --------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """`python -m launch slurm [status|logs|stop] ARGUMENTS`; returns the exit code."""
    actions = {name: functools.partial(_look_at, name) for name in ACTIONS}
    return arguments.act(argv, {"run": run_here, **actions}, _submit)


def _look_at(action: str, argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m launch slurm {action}", allow_abbrev=False)
    _add_place(parser)
    if action == "logs":
        add_lines(parser)
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir])
    return ACTIONS[action](args.name or arguments.name_of(args.workdir), args)


def _submit(argv: Sequence[str]) -> int:
    args, rest = arguments.split(_parser(), argv)
    if args.gpus_per_node and args.processes_per_node > 1:
        raise ValueError(
            f"--processes-per-node={args.processes_per_node}: each would take all GPUs of its node;"
            " one process has them all"
        )
    batch = Batch(
        name=args.name or arguments.name_of(args.workdir),
        workdir=args.workdir,
        logs=args.logs or logs_of(args.workdir),
        train=(f"--config={args.config}", *rest),
        nodes=args.nodes,
        gpus_per_node=args.gpus_per_node,
        processes_per_node=args.processes_per_node,
        notice_s=args.notice_seconds,
        max_restarts=args.max_restarts,
        setup=tuple(args.setup),
        directives=tuple(args.sbatch),
    )
    planned = plan(batch)
    if args.dry_run:
        print(planned)
        return exits.DONE
    number = submit(planned, batch)
    status = shlex.join(("python", "-m", "launch", "slurm", "status", f"--workdir={args.workdir}"))
    say(f"submitted {batch.name}, job {number}; look at it with: {status}")
    return exits.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m launch slurm",
        usage="%(prog)s --nodes=N --gpus-per-node=G --config=FILE --workdir=DIR ...",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_place(parser)
    add, number = parser.add_argument, arguments.whole
    add("--config", required=True, metavar="FILE", help=".py, .py:TARGET or .json")
    add("--nodes", type=number(1), default=1, metavar="N", help="default 1")
    add("--gpus-per-node", type=number(0), default=0, metavar="G", help="default 0")
    several = "without GPUs (default 1)"
    add("--processes-per-node", type=number(1), default=1, metavar="N", help=several)
    notice = "before the time limit, to save (default %(default)s)"
    add("--notice-seconds", type=number(1), default=Batch.notice_s, metavar="S", help=notice)
    restarts = "give up after K restarts without progress (default %(default)s)"
    add("--max-restarts", type=number(0), default=Job.max_restarts, metavar="K", help=restarts)
    setup = "line of shell before all else, as 'module load cuda'; may be repeated"
    add("--setup", action="append", default=[], metavar="LINE", help=setup)
    more = "of sbatch's own, as --sbatch=--partition=gpu; may be repeated"
    add("--sbatch", action="append", default=[], metavar="FLAG", help=more)
    add("--dry-run", action="store_true", help="print what would be run, as a shell script")
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, metavar="DIR", help="of the run, or its URL")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="default: WORKDIR/logs")
    parser.add_argument("--name", default="", help="of the job; default: made from --workdir")
