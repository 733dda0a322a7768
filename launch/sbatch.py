"""What the jobs of Slurm have in common: the batch script, and Slurm's own commands to submit it,
to look at it and to stop it.

The script's job runs `srun` over a program on all nodes, and starts it again while that helps. Its
name is made from the work directory, so that nothing is stored.
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
from launch.exits import OF_ALL
from launch.foreground import add_lines, show_log
from launch.job import Job, log_of, logs_of, run
from launch.process import Spec, say
from launch.tool import Refused, Tool

LOG = "slurm.log"
GONE = "not in the queue"
SLURM = Tool(missing="run this where jobs are submitted")


@dataclass(frozen=True)
class Kind:
    """What jobs of one launcher run, and how they are ended."""

    launcher: str
    """Its name on the command line."""
    on_node: tuple[str, ...]
    """After `python -m launch`, on each node."""
    notice: str
    """Signal to the script before the time limit."""
    notice_s: int
    show: Callable[[str], int]
    """Prints how far the work directory's job has come; returns the exit code."""
    what: str
    """As in `Job`, and so the next."""
    peer_grace_s: float
    ended: str
    """What stopping does, for people."""


@dataclass(frozen=True)
class Batch:
    """What is submitted."""

    name: str
    logs: Path
    command: tuple[str, ...]
    """What the script becomes."""
    notice: str
    nodes: int = 1
    gpus_per_node: int = 0
    tasks_per_node: int = 1
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
        f"--ntasks-per-node={batch.tasks_per_node}",
        *gpus,
        "--exclusive",
        "--requeue",
        f"--signal=B:{batch.notice}",
        "--open-mode=append",
        f"--output={shlex.quote(str(batch.logs.absolute() / LOG))}",
        f"--chdir={shlex.quote(str(Path.cwd()))}",
        *batch.directives,  # the last one counts
    ]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {directive}" for directive in directives),
        *batch.setup,
        f"exec {shlex.join(batch.command)}",
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


def run_here(kind: Kind, argv: Sequence[str]) -> int:
    """In the batch script: runs the job on all nodes; returns the exit code."""
    parser = arguments.Parser(f"{kind.launcher} run")
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--max-restarts", type=arguments.whole(0), required=True)
    cut = argv.index("--")
    args, rest = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        raise ValueError(f"{parser.prog}: is for the script that `sbatch` takes")
    # One task has all CPUs of its node: no binding; --wait=0: the launcher ends the others.
    srun = ("srun", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0")
    host = (sys.executable, "-m", "launch", *kind.on_node)
    where = (f"--workdir={args.workdir}", f"--logs={args.logs}")
    all_hosts = Spec(
        index=OF_ALL,
        command=(*srun, *host, *where, "--", *rest),
        log=log_of(OF_ALL, args.logs),
        signaller=("scancel", "--signal={signal}", number),
    )
    job = Job(
        workdir=args.workdir,
        logs=args.logs,
        specs=lambda: [all_hosts],
        after_stop=("scontrol", "requeue", number),
        max_restarts=args.max_restarts,
        what=kind.what,
        peer_grace_s=kind.peer_grace_s,
    )
    return run(job)


# ---- looking at a job, and stopping it -----------------------------------------------------------


def _status(kind: Kind, name: str, args: argparse.Namespace) -> int:
    for number in _queued(name):
        line = SLURM.call(("squeue", "--noheader", f"--jobs={number}", "--format=%T %M of %l, %R"))
        print(f"{name}: job {number}, {line.strip()}", flush=True)
    if not _queued(name):
        print(f"{name}: {GONE}", flush=True)
    return kind.show(args.workdir)


def _logs(kind: Kind, name: str, args: argparse.Namespace) -> int:
    return show_log((args.logs or logs_of(args.workdir)) / LOG, args)


def _stop(kind: Kind, name: str, args: argparse.Namespace) -> int:
    numbers = _queued(name)
    if not numbers:
        raise ValueError(f"{name}: {GONE}")
    for number in numbers:
        SLURM.call(("scontrol", "update", f"JobId={number}", "Requeue=0"))
        state = SLURM.call(("squeue", "--noheader", f"--jobs={number}", "--format=%T")).strip()
        # TERM comes to the processes and not to the script, which waits for them.
        running = ("--signal=TERM",) if state == "RUNNING" else ()
        SLURM.call(("scancel", *running, number))
        say(f"job {number}: {kind.ended}; submitting it again goes on from there")
    return exits.DONE


ACTIONS: dict[str, Callable[[Kind, str, argparse.Namespace], int]] = {
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


def actions(kind: Kind) -> dict[str, Callable[[Sequence[str]], int]]:
    """What a launcher of Slurm's jobs does besides submitting: name -> arguments in, code out."""
    looks = {name: functools.partial(_look_at, kind, name) for name in ACTIONS}
    return {"run": functools.partial(run_here, kind), **looks}


def _look_at(kind: Kind, action: str, argv: Sequence[str]) -> int:
    parser = arguments.Parser(f"{kind.launcher} {action}")
    add_place(parser)
    if action == "logs":
        add_lines(parser)
    args = parser.parse_args(argv)
    arguments.check_urls(parser, [args.workdir])
    return ACTIONS[action](kind, args.name or arguments.name_of(args.workdir), args)


def batch(
    kind: Kind,
    args: argparse.Namespace,
    rest: Sequence[str],
    tasks_per_node: int = 1,
    gpus_per_node: int = 0,
) -> Batch:
    """What the flags of `add_batch` and `add_place` ask for; `rest`: for the program."""
    logs = args.logs or logs_of(args.workdir)
    return Batch(
        name=args.name or arguments.name_of(args.workdir),
        logs=logs,
        command=(
            *(sys.executable, "-m", "launch", kind.launcher, "run"),
            *(f"--workdir={args.workdir}", f"--logs={logs.absolute()}"),
            *(f"--max-restarts={args.max_restarts}", "--", *rest),
        ),
        notice=f"{kind.notice}@{args.notice_seconds}",
        nodes=args.nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=tasks_per_node,
        setup=tuple(args.setup),
        directives=tuple(args.sbatch),
    )


def submit_or_show(kind: Kind, batch: Batch, args: argparse.Namespace) -> int:
    """Submits it, or prints what would be run; returns the exit code."""
    planned = plan(batch)
    if args.dry_run:
        print(planned)
        return exits.DONE
    number = submit(planned, batch)
    look = ("python", "-m", "launch", kind.launcher, "status", f"--workdir={args.workdir}")
    say(f"submitted {batch.name}, job {number}; look at it with: {shlex.join(look)}")
    return exits.DONE


def add_place(parser: argparse.ArgumentParser) -> None:
    """Flags that say which job it is."""
    parser.add_argument("--workdir", required=True, metavar="DIR", help="of the run, or its URL")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="default: WORKDIR/logs")
    parser.add_argument("--name", default="", help="of the job; default: made from --workdir")


def add_batch(parser: argparse.ArgumentParser, kind: Kind) -> None:
    """Flags of a job that is to be submitted."""
    add, number = parser.add_argument, arguments.whole
    add("--nodes", type=number(1), default=1, metavar="N", help="default 1")
    notice = "before the time limit, to save (default %(default)s)"
    add("--notice-seconds", type=number(1), default=kind.notice_s, metavar="S", help=notice)
    restarts = "give up after K restarts without progress (default %(default)s)"
    add("--max-restarts", type=number(0), default=Job.max_restarts, metavar="K", help=restarts)
    setup = "line of shell before all else, as 'module load cuda'; may be repeated"
    add("--setup", action="append", default=[], metavar="LINE", help=setup)
    more = "of sbatch's own, as --sbatch=--partition=gpu; may be repeated"
    add("--sbatch", action="append", default=[], metavar="FLAG", help=more)
    add("--dry-run", action="store_true", help="print what would be run, as a shell script")
