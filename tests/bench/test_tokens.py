"""What is compared with SentencePiece's encode, and what is printed of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import tokens
from tests.data_tools import small


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tokens")
    (root / "corpus").mkdir()
    small.write_raw(root / "corpus", files=2)
    small.run(small.recipe(), root / "corpus")
    (root / "out").mkdir()
    texts = {n: tokens.write_texts(root / "corpus", root / n, n) for n in tokens.CHOSEN}
    shards = json.loads((root / "corpus" / "manifest.json").read_text())["shards"]
    for name, of_types in ((tokens.ALL, {"book", "code", "web"}), ("Chinese", {"book"})):
        chosen = [s for s in shards if s["type"] in of_types]
        copies = tokens.CHOSEN[name].copies
        assert texts[name].documents == copies * sum(s["documents"] for s in chosen) > 0
        assert texts[name].bytes == copies * sum(s["text_bytes"] for s in chosen)
    return root / tokens.ALL


def run(*command: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_both_sides_make_the_same_ids_of_the_same_texts(directory: Path):
    theirs = [run("bench.encode", directory, workers) for workers in tokens.WORKERS]
    ours = run("bench.tokenize", "whole", directory, 1)
    assert ours["tokens"] == theirs[0]["tokens"] == theirs[1]["tokens"] > 1000
    for side in (ours, *theirs):
        assert side["seconds"] > 0 and side["cpu_s"] > 0
    packed = {m: run("bench.tokenize", "pack", directory, m) for m in tokens.METHODS}
    for found in packed.values():
        assert found["tokens"] == ours["tokens"]
        ids = found["chunks"] * found["chunk_tokens"]
        assert found["tokens"] + found["padding"] <= ids + found["documents"]
    # best_fit: no document is longer than a chunk here
    assert packed["best_fit"]["truncated"] == 0 < packed["concat"]["truncated"]


def test_a_ratio_is_taken_in_each_round_and_the_target_is_named(capsys):
    ours = [{"seconds": s, "cpu_s": 1.0, "tokens": 7} for s in (1.0, 10.0, 4.0)]
    theirs = [{"seconds": s, "cpu_s": 0.9, "tokens": 7} for s in (0.9, 5.0, 3.0)]
    figures = {"ours, all, 1": ours, "SentencePiece, all, 1": theirs}
    figures |= {"ours, all, 2": theirs, "SentencePiece, all, 2": theirs}
    texts, peaks = tokens.Texts(3, 2_000_000), dict.fromkeys(figures, 5e6)
    missed = tokens.show_encode("all", texts, figures, peaks)
    assert missed == ["all text, workers=1: 0.75 of SentencePiece's speed, below 0.8"]
    printed = capsys.readouterr().out
    assert "| 1 | text to shards | 4.0 | 0.50 | 1.0 | 5 | 0.75; of processor time 0.90 |" in printed
    assert "| 2 | text to shards | 3.0 | 0.67 | 0.9 | 5 | 1.00; of processor time 1.00 |" in printed
