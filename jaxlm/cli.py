"""The `jaxlm` command: reads the command line, then imports what the command needs.

Exit codes: 0 done; 75 start me again; 2 wrong usage, config or data; 78
wrong environment. Anything else is a bug, with its traceback.
"""

import argparse
import errno
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from jaxlm import allocator, platforms, site, storage, terminal
from jaxlm.errors import EnvironmentProblem, UserError

if TYPE_CHECKING:
    from jaxlm.config import Config
    from jaxlm.site import Workdir

OVERRIDE = "--config."

EPILOG = """\
Any field of the configuration can be set on the command line, for example
  --config.train.end="2000 steps" --config.optim.lr=1e-3 --config.mesh.fsdp=8
`jaxlm config` prints every field with its meaning.

exit codes: 0 done, 75 start me again, 2 wrong usage, config or data (of a plan also: it does not
fit), 78 wrong environment
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    platforms.choose()
    top = parser()
    args = top.parse_args([a for a in argv if not a.startswith(OVERRIDE)])
    args.overrides = tuple(a.removeprefix(OVERRIDE) for a in argv if a.startswith(OVERRIDE))
    if args.overrides and "config" not in args:
        top.error(f"{args.command} takes no {OVERRIDE}{args.overrides[0]}: it reads no config")
    try:
        return args.run(args)
    except KeyboardInterrupt:
        sys.tracebacklimit = 0  # it is no bug
        raise
    except BrokenPipeError:  # `jaxlm trace ... | head`
        if args.command in ("train", "demo"):
            raise  # not done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        code = _tell(args.command, e)
        if getattr(args, "joined", False):
            _end_alone(code)
        if code is None:
            raise
        return code
    finally:
        if args.command == "train":
            terminal.let_go()


def _tell(command: str, error: Exception) -> int | None:
    """Says what a user can put right; the exit code, None for a bug."""
    error = storage.problem(error) or error
    if isinstance(error, UserError):
        terminal.show(f"jaxlm {command}: {error}", sys.stderr)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        terminal.show(f"jaxlm {command}: {error}; make room, then start again", sys.stderr)
        return EnvironmentProblem.exit_code
    return None


def _end_alone(code: int | None) -> NoReturn:
    """Ends a process of several that has failed, while an exception is handled.

    At a usual exit JAX waits for the other processes and, if they do not come, aborts: the exit
    code would be lost, and a run that no restart can help would be started again.
    """
    if code is None:
        with terminal.dropping():
            traceback.print_exc()
    terminal.let_go()
    os._exit(1 if code is None else code)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="jaxlm",
        description="Trains, evaluates and samples language models from tokenized shards.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: object, help: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=help,
            description=help,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(run=run)
        if name in allocator.COMMANDS:
            # Read by `allocator` before this; here it is known, and explained.
            command.add_argument(
                allocator.FLAG, action="store_true", help="on a CPU: slower steps, less memory"
            )
        return command

    _add_train(add("train", _train, "trains, or resumes what lies in the work directory"))
    _add_plan(add("plan", _plan, "memory, speed and cost of a run on a target, without it"))
    _add_run(add("evaluate", _evaluate, "held-out loss of the newest checkpoint, by type"))
    _add_sample(add("sample", _sample, "text from the newest checkpoint"))
    _add_trace(add("trace", _trace, "the documents of a step, the steps of a document"))
    _add_replay(add("replay", _replay, "runs the batch of an event again, layer by layer"))
    status = add("status", _status, "where a run is, and where its time has gone")
    status.add_argument("--workdir", type=_directory, required=True, metavar="DIR")
    status.add_argument("--json", action="store_true", help="all of it, as JSON")
    config = add("config", _config, "every field of a configuration, its value and its meaning")
    config.add_argument("--config", type=Path, metavar="FILE", help="default: the defaults")
    demo = add("demo", _demo, "the whole way from raw text to a trained model, in minutes")
    demo.add_argument("--workdir", type=_local, default=Path("runs/demo"), metavar="DIR")
    return top


def _directory(name: str) -> "Workdir":
    try:
        return site.of(name)
    except UserError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def _checkpoint(name: str) -> str:
    """A path or a URL, as it was given."""
    _directory(name)
    return name


def _local(name: str) -> Path:
    """A URL would become a directory called `gs:` here."""
    if storage.is_url(name):
        raise argparse.ArgumentTypeError(f"{name.partition(':')[0]}: must be a directory here")
    return Path(name)


def _add_train(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help=".py, .py:TARGET or .json"
    )
    command.add_argument("--workdir", type=_directory, required=True, metavar="DIR")
    command.add_argument("--coordinator", metavar="HOST:PORT", help="of several processes")
    command.add_argument(
        "--bind", metavar="ADDRESS", help="where the coordinator listens; default: everywhere"
    )
    command.add_argument("--processes", type=int, default=1, metavar="N")
    command.add_argument("--process", type=int, default=0, metavar="I", help="which one this is")
    command.add_argument(
        "--fallback",
        action="store_true",
        help="where the newest checkpoint is damaged or gone, go on from the one before it",
    )
    command.add_argument(
        "--allow-change",
        action="append",
        default=[],
        metavar="FIELD",
        help="a fixed field that a resume may change, as data.seed; data: the corpus; tokenizer",
    )
    command.add_argument(
        "--init-from",
        type=_checkpoint,
        metavar="PATH",
        help="of a new run: take the parameters of this checkpoint, snapshot or run",
    )
    command.add_argument(
        "--verify-step",
        action="store_true",
        help="do the first step twice, and go on if it comes out the same to the bit",
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="compile the step, print what it takes of these devices, write nothing",
    )


def _add_plan(command: argparse.ArgumentParser) -> None:
    def number(flag: str, metavar: str, help: str) -> None:
        command.add_argument(flag, type=float, metavar=metavar, help=help)

    command.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help=".py, .py:TARGET or .json"
    )
    command.add_argument(
        "--target",
        required=True,
        metavar="CHIP:SHAPE",
        help="chips along each axis, v5p:2x4x4; nodes x GPUs a node, h100:4x8",
    )
    command.add_argument("--slices", type=int, default=1, metavar="N", help="of a TPU target")
    command.add_argument("--json", action="store_true", help="all figures, as JSON")
    command.add_argument(
        "--search", action="store_true", help="the best mesh, rows at once and remat policy"
    )
    command.add_argument(
        "--compiles", type=int, metavar="N", help="of a search, at most (default: 6)"
    )
    command.add_argument(
        "--ablate", action="store_true", help="what each technique saves and costs here"
    )
    number("--price", "USD", "of a chip and hour, on demand; default: the table's")
    number("--spot-price", "USD", "the same on the spot market")
    number("--preemptions-per-day", "N", "of the whole job: tells what checkpoints should cost")
    number("--write-gbs", "GB/S", "a host's, to where checkpoints lie (default: 1)")
    number("--restart-minutes", "M", "from a preemption to the next step (default: 10)")


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workdir", type=_directory, required=True, metavar="DIR", help="of the run"
    )
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="default: the one in the work directory"
    )


def _add_sample(command: argparse.ArgumentParser) -> None:
    _add_run(command)
    command.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help="text to go on from; may be repeated; default: the start of a document",
    )
    command.add_argument("--max-tokens", type=int, default=128, metavar="N")
    command.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0: likeliest")
    command.add_argument("--top-k", type=int, default=0, metavar="K", help="0: all")
    command.add_argument("--top-p", type=float, default=0.95, metavar="P", help="1: all")
    command.add_argument("--seed", type=int, default=0, metavar="S")


def _add_trace(command: argparse.ArgumentParser) -> None:
    _add_run(command)
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="step of the run, counted from 1")
    what.add_argument("--position", type=int, metavar="P", help="one row of the order")
    what.add_argument("--document", metavar="ID", help="32 hex digits: the steps that it is in")
    command.add_argument("--row", type=int, metavar="R", help="one row of the step, from 0")
    command.add_argument("--text", action="store_true", help="all of the text, not its beginning")


def _add_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("event", metavar="EVENT", help="its name, as in WORKDIR/events/")
    _add_run(command)
    command.add_argument(
        "--exact",
        action="store_true",
        help="first do the steps from the last checkpoint before it to the event",
    )
    command.add_argument(
        "--from",
        dest="start",
        type=_checkpoint,
        metavar="PATH",
        help="full checkpoint to begin with; default: the last one before the event",
    )


def _train(args: argparse.Namespace) -> int:
    from jaxlm import config, schema

    schema.one_target(args.config)
    cfg = config.load(args.config, args.overrides)
    from jaxlm.signals import stop_signals

    with stop_signals(cfg.watch) as stop:  # first of all: what follows takes seconds to import
        from jaxlm import cluster

        cluster.start(args.coordinator, args.processes, args.process, args.bind, cfg.watch)
        args.joined = args.processes > 1
        if args.dry_run:
            from jaxlm.plan.attached import dry_run

            return dry_run(cfg, str(args.config), args.workdir)
        from jaxlm.run import Options
        from jaxlm.train import train

        options = Options(args.fallback, tuple(args.allow_change), args.init_from, args.verify_step)
        return train(cfg, args.workdir, options, stop)


def _plan(args: argparse.Namespace) -> int:
    from jaxlm.plan import command
    from jaxlm.plan.report import Options

    options = Options(
        price=args.price,
        spot_price=args.spot_price,
        preemptions_per_day=args.preemptions_per_day,
        write_gbs=args.write_gbs,
        restart_minutes=args.restart_minutes,
    )
    wishes = command.Wishes(args.json, args.search, args.ablate, args.compiles)
    return command.plan(args.config, args.overrides, args.target, args.slices, options, wishes)


def _evaluate(args: argparse.Namespace) -> int:
    cfg = _of_run(args)
    from jaxlm import commands

    return commands.evaluate(cfg, args.workdir)


def _sample(args: argparse.Namespace) -> int:
    from jaxlm import commands
    from jaxlm.sample import Sampling

    how = Sampling(args.max_tokens, args.temperature, args.top_k, args.top_p, args.seed)
    return commands.sample(_of_run(args), args.workdir, args.prompt or [""], how)


def _trace(args: argparse.Namespace) -> int:
    if args.row is not None and args.step is None:
        raise UserError(f"--row={args.row}: is a row of a step; give --step too")
    cfg = _of_run(args)
    from jaxlm import trace_lines
    from jaxlm.trace import Trace

    trace = Trace(cfg, args.workdir)
    if args.step is not None:
        lines = trace_lines.of_step(trace, args.step, args.row, args.text)
    elif args.position is not None:
        lines = trace_lines.of_position(trace, args.position, args.text)
    else:
        lines = trace_lines.of_document(trace, args.document, args.text)
    for line in lines:
        print(line)
    return 0


def _replay(args: argparse.Namespace) -> int:
    if Path(args.event).name != args.event:
        raise UserError(f"{args.event}: is no event; write its name, as in WORKDIR/events/")
    cfg = _of_run(args, f"events/{args.event}/config.json")
    from jaxlm.replay import replay

    return replay(cfg, args.workdir, args.event, args.exact, args.start)


def _status(args: argparse.Namespace) -> int:
    from jaxlm import status, status_lines

    site.fetch(args.workdir)
    now = time.time()
    found = status.of(args.workdir, now)
    if args.json:
        print(json.dumps(status.as_data(found), ensure_ascii=False, indent=1))
    else:
        print("\n".join(status_lines.of(found, now)))
    return 0


def _config(args: argparse.Namespace) -> int:
    from jaxlm import config, schema

    placeholder = () if args.config else ("data.manifest=MANIFEST",)
    cfg = config.load(args.config, (*placeholder, *args.overrides))
    print(
        "[fixed] a resume refuses a change, [recorded] writes it to history.jsonl, [free] is free"
    )
    for field in schema.described(cfg):
        print(field)
    return 0


def _of_run(args: argparse.Namespace, saved: str = "config.json") -> "Config":
    """The config that is given, or else the one that was written into the work directory.

    What the command reads is here then.
    """
    from jaxlm import config

    site.fetch(args.workdir)
    if saved.startswith("events/"):
        site.fetch(args.workdir, saved.rpartition("/")[0])
    path = args.workdir / saved
    if args.config is None and not path.is_file():
        raise UserError(f"--workdir={args.workdir}: no {saved} there; has a run started?")
    return config.load(args.config or path, args.overrides)


def _demo(args: argparse.Namespace) -> int:
    from jaxlm.demo import demo

    return demo(args.workdir)
