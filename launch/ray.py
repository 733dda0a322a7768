"""Builds a corpus on a Ray cluster: `python -m data_tools build --engine=ray`.

With --address on one that is there: the build runs here, and again while that helps. Otherwise as a
job of Slurm, whose script makes a cluster of its nodes for as long as the build takes: before the
time limit, and when it is told to end, it goes back into the queue, to go on from there.
"""

import argparse
import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from jaxlm import storage
from launch import arguments, exits, foreground, progress, ray_node, sbatch
from launch.job import Job, log_of, logs_of
from launch.process import Spec

_EPILOG = """\
All other arguments, or those after --, go to `data_tools build` as they are: --config.a.b=VALUE ...

  python -m launch ray --address=HOST:PORT ...   a cluster that is there; auto: this machine's
  python -m launch ray --nodes=N ...             a job of Slurm, and then, with its --workdir:
  python -m launch ray status|logs|stop          in the queue or not and how far the build is; the
                                                 output of all nodes; ends the build, for good

The work directory, the raw text and this Python must be the same on all nodes, and here.

exit code: of the build with --address, see `data_tools`; of Slurm's: 0 submitted, 2 wrong usage,
78 Slurm refuses
"""
_OURS = ("--engine", "--ray-address", "--ray-nodes")
_OF_SLURM = ("nodes", "notice_seconds", "setup", "sbatch", "name")


def _show(workdir: str) -> int:
    counts = progress.partitions(workdir)
    print("committed partitions: " + (", ".join(f"{k} {n:,}" for k, n in counts.items()) or "none"))
    manifest = Path(workdir, "manifest.json")
    print(f"{manifest}: is {'there' if manifest.exists() else 'not there yet'}")
    return exits.DONE


KIND = sbatch.Kind(
    launcher="ray",
    on_node=("ray", "node"),
    notice="TERM",
    notice_s=60,
    show=_show,
    what="build",
    peer_grace_s=60.0,  # Ray's workers see that the head is gone, and end
    ended="the build ends",
)


def main(argv: Sequence[str]) -> int:
    """`python -m launch ray [status|logs|stop] ARGUMENTS`; returns the exit code."""
    actions = sbatch.actions(KIND) | {"node": ray_node.main, "run": _run}
    return arguments.act(argv, actions, _start)


def _run(argv: Sequence[str]) -> int:
    """In the batch script. Who has not the job's secret cannot give work to its cluster."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["SLURM_EXPORT_ENV"] = "ALL"  # to the nodes, whatever sbatch was told
    return sbatch.run_here(KIND, argv)


def _start(argv: Sequence[str]) -> int:
    parser = _parser()
    args, rest = arguments.split(parser, argv)
    for name in (argument.partition("=")[0] for argument in rest):
        if name in _OURS:
            parser.error(f"{name}: the launcher sets it; remove it")
    if storage.is_url(args.workdir):
        parser.error(f"--workdir={args.workdir}: a build needs a directory that all nodes share")
    if args.address is None:
        batch = sbatch.batch(KIND, args, (f"--config={args.config}", *rest))
        return sbatch.submit_or_show(KIND, batch, args)
    given = [name for name in _OF_SLURM if getattr(args, name) != parser.get_default(name)]
    if given:
        flag = given[0].replace("_", "-")
        parser.error(f"--{flag} is for a job of Slurm; remove it or --address")
    return _run_at(args, rest)


def _run_at(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """On a cluster that is there."""
    where = (f"--ray-address={args.address}", f"--workdir={args.workdir}")
    logs = args.logs or logs_of(args.workdir)
    build = Spec(0, (*ray_node.BUILD, *where, f"--config={args.config}", *rest), log_of(0, logs))
    if args.dry_run:
        print(shlex.join(build.command))
        return exits.DONE
    job = Job(args.workdir, logs, lambda: [build], max_restarts=args.max_restarts, what="build")
    return foreground.run(job)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "ray",
        usage="(--address=HOST:PORT | --nodes=N) --config=RECIPE --workdir=DIR ...",
        description=__doc__ or "",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--config", required=True, metavar="FILE", help="recipe, .py or .json")
    there = "of a cluster that is there, or auto: this machine's"
    add("--address", metavar="HOST:PORT", help=there)
    sbatch.add_place(parser)
    sbatch.add_batch(parser, KIND)
    return parser
