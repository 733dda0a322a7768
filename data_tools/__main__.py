"""Command line: `python -m data_tools build --config=configs/data/demo.py --workdir=DIR`.

Exit codes: 0 done; 2 wrong usage, config or data; 78 a work directory or an output that cannot be
written; 1 a fault of the code; 130 interrupted; 141 nobody reads the output any more, as behind
`| head`: a build ends there too. The same command goes on where it stopped.
"""

import argparse
import io
import os
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
    "tokenizer": "samples text and trains the tokenizer",
    "tokenize": "documents to token ids",
    "pack": "token ids to shards and the manifest",
    "report": "report.json and report.html",
}
SAMPLE_HELP = "gathers the demo's corpus from this machine and two small wheels"
RAY_ADDRESS_HELP = "of the cluster; auto (default): this machine's, local: a new one here"
VERIFY_HELP = "reads every shard and compares it with the manifest"
EXPLAIN_HELP = "tells what a finished build did to one document, and how to undo it"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args, overrides = _parse(sys.argv[1:] if arguments is None else arguments)
    from data_tools.engines import TaskError
    from data_tools.engines.refusal import refusal
    from jaxlm.errors import UserError

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
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


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
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("--config", type=Path, required=True, help="recipe, .py or .json")
        command.add_argument("--workdir", type=Path, required=True, help="where everything lies")
        command.add_argument(
            "--engine", choices=("local", "ray"), default="local", help="where tasks run"
        )
        command.add_argument("--ray-address", metavar="ADDRESS", help=RAY_ADDRESS_HELP)
        command.epilog = "--config.a.b=VALUE overrides a field of the recipe"
    others = {"sample": SAMPLE_HELP, "verify": VERIFY_HELP, "explain": EXPLAIN_HELP}
    for name, text in others.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("--workdir", type=Path, required=True, help="where everything lies")
        if name == "explain":
            what = command.add_mutually_exclusive_group(required=True)
            what.add_argument("id", metavar="DOC_ID", nargs="?", help="32 hex digits")
            what.add_argument("--path", metavar="FILE", help="lists the documents of a raw file")
    args, rest = parser.parse_known_args(arguments)
    prefix = "--config."
    wrong = [a for a in rest if not (a.startswith(prefix) and args.command in steps)]
    if wrong:
        parser.error(f"unknown argument {wrong[0]!r}; overrides are written --config.a.b=VALUE")
    if args.command in steps and args.ray_address and args.engine != "ray":
        parser.error(f"--ray-address={args.ray_address} needs --engine=ray")
    return args, [a.removeprefix(prefix) for a in rest]


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    from jaxlm.workdir import check_writable

    if args.command == "verify":
        return _verify(args.workdir)
    if args.command == "explain":
        from data_tools.explain import documents_of, explain

        found = explain(args.workdir, args.id) if args.id else documents_of(args.workdir, args.path)
        print("\n".join(found))
        return 0
    check_writable(args.workdir)
    if args.command == "sample":
        from data_tools.sample import sample

        sample(args.workdir)
        return 0
    from data_tools import engines
    from data_tools.build import build
    from data_tools.recipe import Recipe
    from jaxlm.schema import load

    recipe = load(Recipe, args.config, overrides)
    memory = recipe.worker_memory_bytes
    if args.engine == "ray":
        args.workdir = args.workdir.absolute()  # workers stand elsewhere
        engine = engines.cluster(args.ray_address or "auto", args.workdir, memory)
    else:
        engine = engines.local(recipe.worker_count(), memory)
    try:
        last = "report" if args.command == "build" else args.command
        build(recipe, args.workdir, engine, last)
    finally:
        engine.close()
    if last == "report":
        from data_tools.report import lines

        print("\n".join(lines(args.workdir)))
        print(f"corpus: {args.workdir / 'manifest.json'}, report: {args.workdir / 'report.html'}")
    return 0


def _verify(workdir: Path) -> int:
    from tqdm import tqdm

    from jaxlm.data import manifest

    path = workdir / "manifest.json"
    corpus = manifest.load(path)
    manifest.check_files(corpus, workdir)
    shards = manifest.verify(corpus, workdir)
    bar = tqdm(shards, total=len(corpus.shards), unit="shard", disable=None, leave=False)
    damaged = [str((workdir / s.path).parent) for s, agrees in bar if not agrees]
    if damaged:
        raise manifest.ManifestError(
            f"{path}: {len(damaged)} of {len(corpus.shards)} shards differ from their sha256; "
            "remove their directories and run the same build again, which makes them anew:\n"
            + "\n".join(damaged)
        )
    print(f"{len(corpus.shards)} shards agree with {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
