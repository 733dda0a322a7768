"""Time from the command to the first line of training: imports, checks, compilation, two steps."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "demo.py"

COMPILING, REPORT = "; compiling", "step "
"""What the two lines say."""


class StartFigures(NamedTuple):
    """Seconds since the process was started."""

    ready_s: float
    """All checked and the initial state made; compilation begins."""
    report_s: float
    """The first report, after two steps; held-out loss and the machine's peak were measured too."""


def measure() -> StartFigures:
    """Runs `jaxlm train` on the demo's model and synthetic rows, with nothing cached."""
    with tempfile.TemporaryDirectory() as workdir:
        command = [sys.executable, "-m", "jaxlm", "train"]
        command += [f"--config={CONFIG}", f"--workdir={workdir}"]
        command += ["--config.data.source=synthetic", "--config.data.mixture=()"]
        command += ["--config.train.end=2 steps", "--config.log.every=1 steps"]
        command += ["--config.optim.warmup=0 steps"]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen = [(time.perf_counter() - start, line) for line in process.stdout]
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    ready = next(at for at, line in seen if COMPILING in line)
    return StartFigures(ready, next(at for at, line in seen if line.startswith(REPORT)))
