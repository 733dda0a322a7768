"""The commands that look at a run, from its work directory alone."""

import json
import re
import subprocess
import sys

import pytest

from bench import runs
from jaxlm import cli
from jaxlm import workdir as workdirs

pytestmark = pytest.mark.system


def jaxlm(*arguments: str) -> str:
    """Standard output of a command that must succeed, on one device."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxlm", *arguments],
        capture_output=True,
        text=True,
        env=runs.environment(1),
        timeout=runs.PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status(whole, capsys):
    assert cli.main(["status", f"--workdir={whole}"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("done, ")
    assert re.search(rf"^step +{runs.STEPS} of {runs.STEPS}$", output, re.M)
    assert re.search(rf"^rows +{4 * runs.STEPS} of {4 * runs.STEPS} +100.0%$", output, re.M)
    assert re.search(rf"^checkpoint +step {runs.STEPS}, .* ago; 6 kept$", output, re.M)
    assert re.search(rf"^ +1 .* 0-{runs.STEPS} +0  done$", output, re.M)
    assert runs.time_spent(whole).seconds["useful"] > 0


def test_evaluate_gives_what_the_last_step_logged(whole):
    output = jaxlm("evaluate", f"--workdir={whole}")
    assert f"step {runs.STEPS} of {whole}" in output
    logged = [m for m in workdirs.metrics(whole) if "heldout/zh/loss" in m][-1]
    assert logged["step"] == runs.STEPS
    scores = json.loads((whole / f"evaluation-{runs.STEPS}.json").read_text())["scores"]
    assert scores.keys() == {"zh", "en"}
    for name, score in scores.items():
        assert score["loss"] == logged[f"heldout/{name}/loss"]
        assert score["bits_per_byte"] == logged[f"heldout/{name}/bits_per_byte"]
        assert re.search(rf"^{name} +{score['loss']:.4f} ", output, re.M)


def test_sample(whole):
    arguments = ("sample", f"--workdir={whole}", "--prompt=中文的", "--max-tokens=20", "--seed=3")
    output = jaxlm(*arguments)
    assert output.startswith("中文的")
    assert len(output.strip()) > len("中文的")
    assert output == jaxlm(*arguments)
