"""Runs a job on a cluster with Slurm: a batch script, submitted, looked at and stopped by Slurm's
own commands.

The script's job runs `srun` over `python -m launch host` on all nodes, and starts it again while
that helps. Before the time limit, and when it is told to end, all processes save and the job goes
back into the queue.
"""

import argparse
from collections.abc import Sequence

from launch import arguments, sbatch
from launch.foreground import show_status
from launch.job import Job

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train` as they are: --config.a.b=VALUE ...

  python -m launch slurm status --workdir=DIR   in the queue or not, and how far the run is
  python -m launch slurm logs --workdir=DIR     output of all nodes, with that of launchers
  python -m launch slurm stop --workdir=DIR     every process saves and ends, for good

The work directory, the corpus and this Python must be the same on all nodes. One process a node
has all of its GPUs.

exit code: 0 submitted, 2 wrong usage, 78 Slurm refuses
"""


KIND = sbatch.Kind(
    launcher="slurm",
    on_node=("host", "--place=slurm", "--tell"),
    notice="USR1",
    notice_s=120,
    show=show_status,
    what=Job.what,
    peer_grace_s=Job.peer_grace_s,
    ended="every process saves and ends",
)


def main(argv: Sequence[str]) -> int:
    """`python -m launch slurm [status|logs|stop] ARGUMENTS`; returns the exit code."""
    return arguments.act(argv, sbatch.actions(KIND), _submit)


def _submit(argv: Sequence[str]) -> int:
    args, rest = arguments.split(_parser(), argv)
    if args.gpus_per_node and args.processes_per_node > 1:
        raise ValueError(
            f"--processes-per-node={args.processes_per_node}: each would take all GPUs of its node;"
            " one process has them all"
        )
    train = (f"--config={args.config}", *rest)
    batch = sbatch.batch(KIND, args, train, args.processes_per_node, args.gpus_per_node)
    return sbatch.submit_or_show(KIND, batch, args)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "slurm",
        usage="--nodes=N --gpus-per-node=G --config=FILE --workdir=DIR ...",
        description=__doc__ or "",
        epilog=_EPILOG,
    )
    add, number = parser.add_argument, arguments.whole
    add("--config", required=True, metavar="FILE", help=".py, .py:TARGET or .json")
    sbatch.add_place(parser)
    sbatch.add_batch(parser, KIND)
    add("--gpus-per-node", type=number(0), default=0, metavar="G", help="default 0")
    several = "without GPUs (default 1)"
    add("--processes-per-node", type=number(1), default=1, metavar="N", help=several)
    return parser
