"""Time from the command to the end of the first step of `jaxlm train`, and what it goes to.

Three starts: with nothing compiled before, with all of it kept, and of a run that goes on.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from jaxlm import allocator

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "demo.py"

WATCHED = """
import json, sys, time
from jaxlm import allocator
allocator.settle(sys.argv[2:])
began = float(sys.argv.pop(1))
from jaxlm import cli, platforms
platforms.choose()
import jax
from jaxlm import train
imported, compiling, step = time.time(), [], train.Checks.step

def listen(name, seconds, **_):
    if name.startswith("/jax/core/compile/"):
        compiling.append(seconds)

def first(*args):
    train.Checks.step = step
    result = step(*args)
    jax.block_until_ready(result)
    parts = imported - began, sum(compiling), time.time() - began
    print("PARTS", json.dumps(parts), flush=True)
    return result

jax.monitoring.register_event_duration_secs_listener(listen)
train.Checks.step = first
sys.exit(cli.main(sys.argv[1:]))
"""
"""`jaxlm train`, which says after its first step where the time has gone."""


class Parts(NamedTuple):
    """Seconds of one start."""

    imports_s: float
    """Python, JAX and the rest; the process starts itself again for its allocator."""
    compile_s: float
    """Tracing, lowering, and compiling or finding what is compiled: parameters, held-out loss,
    step."""
    first_step_s: float
    """All, from the command to the end of the first step."""

    @property
    def rest_s(self) -> float:
        """Checks, data, initial or restored state, the machine's peak, held-out loss, the step."""
        return self.first_step_s - self.imports_s - self.compile_s


class StartFigures(NamedTuple):
    """Of the demo's model and synthetic rows."""

    cold: Parts
    warm: Parts
    """The same run anew, with its programs kept."""
    resumed: Parts
    """The first run goes on."""


def measure() -> StartFigures:
    """Starts `jaxlm train` three times; what it keeps lies in a directory of its own."""
    with tempfile.TemporaryDirectory() as home:
        one, other = Path(home, "one"), Path(home, "other")
        return StartFigures(_start(home, one, 2), _start(home, other, 2), _start(home, one, 4))


def _start(home: str, workdir: Path, end: int) -> Parts:
    arguments = ["train", f"--config={CONFIG}", f"--workdir={workdir}"]
    arguments += ["--config.data.source=synthetic", "--config.data.mixture=()"]
    arguments += [f"--config.train.end={end} steps", "--config.log.every=1 steps"]
    arguments += ["--config.optim.warmup=0 steps"]
    left_out = ("JAX_COMPILATION_CACHE_DIR", allocator.VARIABLE)
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    kept |= {"JAX_ENABLE_COMPILATION_CACHE": "1", "XDG_CACHE_HOME": home}
    command = [sys.executable, "-c", WATCHED, repr(time.time()), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=kept)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.returncode}")
    line = next(line for line in done.stdout.splitlines() if line.startswith("PARTS "))
    return Parts(*json.loads(line.removeprefix("PARTS ")))
