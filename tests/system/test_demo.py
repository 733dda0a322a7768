"""`make demo` as a newcomer runs it: a fresh clone, an empty HOME, nothing installed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.runs import wait_until
from jaxlm.demo import PROMPTS, SAMPLING

ROOT = Path(__file__).parents[2]
PASSED_ON = ("PATH", "LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""With PIP_* and proxies, all that a fresh machine must know of its network."""

KNOWN = {"book": 0.5, "encyclopedia": 0.8, "code": 0.8}
"""Least share of the trigrams of a type's samples that are in the corpus. Tokens at random have at
most 0.01, 0.58 and 0.62; the demo's model has about 0.55, 0.95 and 0.95."""

BOOKS = 40
"""Samples of a book: one has a share from 0.38 to 0.70, so the share of all is within 0.01
(0.552 and 0.557 of two models)."""

MINUTES = 60
"""In seconds."""


def environment(home: Path) -> dict[str, str]:
    home.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
    return {**kept, "HOME": str(home)}


@contextmanager
def make_demo(clone: Path, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen]:
    with log.open("w") as output:
        process = subprocess.Popen(
            ["make", "demo"],
            cwd=clone,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def finish(clone: Path, env: dict[str, str], log: Path) -> str:
    with make_demo(clone, env, log) as process:
        code = process.wait(timeout=20 * MINUTES)
    text = log.read_text()
    assert code == 0, text[-3000:]
    return text


def sampled(clone: Path, env: dict[str, str], run: Path, prompt: str, count: int) -> list[str]:
    """Samples as the demo takes them."""
    how = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(SAMPLING).items()]
    command = [str(clone / ".venv/bin/python"), "-m", "jaxlm", "sample", f"--workdir={run}", *how]
    done = subprocess.run(
        [*command, *(count * [f"--prompt={prompt}"])],
        cwd=clone,
        env=env,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    texts = [f"{prompt}{rest}".strip() for rest in done.stdout.split(prompt)[1:]]
    assert len(texts) == count
    return texts


def trigrams(text: str) -> list[str]:
    return [text[i : i + 3] for i in range(len(text) - 2)]


@pytest.mark.system
def test_demo_killed_half_way_then_finished_then_run_again(tmp_path: Path):
    clone, env = tmp_path / "a clone", environment(tmp_path / "home")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    run = clone / "runs" / "demo"

    with make_demo(clone, env, tmp_path / "killed.log") as process:
        saved = run / "checkpoints" / "full" / "400" / "commit_success.txt"
        wait_until(saved.exists, process, 15 * MINUTES)
        os.killpg(process.pid, signal.SIGKILL)

    text = finish(clone, env, tmp_path / "resumed.log")
    assert "resuming at step 400" in text
    assert "tokenize: 0 run" in text  # the corpus was there
    summary = json.loads((run / "summary.json").read_text())

    for name, path in summary["files"].items():
        assert (clone / path).exists(), name
    for key, after in summary["after"].items():
        if key.startswith("heldout/"):
            assert after < 0.8 * summary["before"][key], key
    assert sum(c["kept"] for c in summary["counts"].values()) > 500
    assert set(summary["samples"]) == {"book", "encyclopedia", "code"}
    samples = {name: [sample] for name, sample in summary["samples"].items()}
    samples["book"] = sampled(clone, env, run, PROMPTS["book"], BOOKS)
    assert samples["book"][0] == summary["samples"]["book"]
    for name, texts in samples.items():
        lines = (run / "data" / "sample" / f"{name}.jsonl").read_text(encoding="utf-8")
        corpus = "".join(json.loads(line)["text"] for line in lines.split("\n") if line)
        known = set(trigrams(corpus))
        found = [t in known for text in texts for t in trigrams(text)]
        assert len(found) > 50 * len(texts), texts
        assert sum(found) > KNOWN[name] * len(found), texts

    text = finish(clone, env, tmp_path / "again.log")
    assert "nothing to do" in text
    assert json.loads((run / "summary.json").read_text())["samples"] == summary["samples"]
