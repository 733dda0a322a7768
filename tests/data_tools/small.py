"""A small raw corpus, a recipe for it, and the build of both."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data_tools import engines
from data_tools.build import Build, build
from data_tools.heldout import HeldoutConfig
from data_tools.recipe import PackConfig, Recipe, RuleConfig, TokenizerConfig
from data_tools.source import SourceConfig

HAN = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜"
SENTENCE = "the model reads a token and learns to predict what follows all that came before"


def chinese(seed: int, length: int = 120) -> str:
    """Lines of Chinese characters."""
    chosen = random.Random(f"zh {seed}").choices(HAN + "，。", k=length)
    return "".join(chosen) + "。\n"


def english(seed: int, words: int = 60) -> str:
    """A line of English words."""
    return " ".join(random.Random(f"en {seed}").choices(SENTENCE.split(), k=words)) + ".\n"


def code(seed: int, lines: int = 12) -> str:
    """A Python function."""
    rng = random.Random(f"py {seed}")
    body = "".join(
        f"\tx{i} = {rng.choice(SENTENCE.split())}({rng.randrange(999)})\n" for i in range(lines)
    )
    return f"def f{seed}(x):\n{body}\treturn x\n"


def write_jsonl(path: Path, texts: Sequence[object]) -> None:
    """A line a text; anything but a string is written as the line itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": t} if isinstance(t, str) else t) + "\n" for t in texts]
    path.write_text("".join(lines), encoding="utf-8")


def write_raw(workdir: Path, files: int = 4, texts: int = 15) -> None:
    """Three sources of `files` files with `texts` texts each, under `workdir`/raw."""
    for n in range(files):
        seeds = range(n * texts, (n + 1) * texts)
        write_jsonl(workdir / f"raw/zh/{n}.jsonl", [chinese(s) for s in seeds])
        write_jsonl(workdir / f"raw/en/{n}.jsonl", [english(s) for s in seeds])
        for s in seeds:
            path = workdir / f"raw/py/{n}/{s}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code(s), encoding="utf-8")


def recipe(rules: Sequence[RuleConfig] = (), pack: PackConfig | None = None) -> Recipe:
    """A recipe for `write_raw`, a file a partition, without workers."""
    return Recipe(
        sources=(
            SourceConfig("zh", "book", "jsonl", "raw/zh", ("*.jsonl",)),
            SourceConfig("en", "web", "jsonl", "raw/en", ("*.jsonl",)),
            SourceConfig("py", "code", "source_tree", "raw/py", ("**/*.py",)),
        ),
        rules=tuple(rules) or (RuleConfig("unicode_repair"), RuleConfig("min_length")),
        heldout=HeldoutConfig(0.1),
        tokenizer=TokenizerConfig(
            vocab_size=400, sample_bytes=1 << 20, control_symbols=("<user>",), reserved=2
        ),
        pack=pack or PackConfig(chunk_tokens=32, shard_bytes=40 * 64),
        partition_bytes=1,
        workers=1,
    )


def run(recipe: Recipe, workdir: Path, last: str = "report") -> Build:
    """Builds with the recipe's number of workers."""
    engine = engines.local(recipe.workers)
    try:
        return build(recipe, workdir, engine, last)
    finally:
        engine.close()


def one_source(workdir: Path, format: str = "jsonl", **files: bytes) -> Recipe:
    """A recipe with one source, `raw`, of files written here: name, `__` for a dot -> bytes."""
    paths = write_files(workdir / "raw", {k.replace("__", "."): v for k, v in files.items()})
    source = SourceConfig("raw", "web", format, "raw", paths)
    return replace(recipe(), sources=(source,))


def write_files(directory: Path, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Writes files; returns their names."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return tuple(files)


def ran(work: Build) -> dict[str, int]:
    """Stage -> partitions that ran."""
    return {name: len(result.ran) for name, result in work.results.items()}
