"""Real runs of a tiny model: started, watched, killed, and their states compared."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from bench.small_corpus import make_corpus
from jaxlm import goodput, ledger
from jaxlm import workdir as workdirs
from jaxlm.config import (
    Config,
    DataConfig,
    EvaluateConfig,
    LogConfig,
    ModelConfig,
    TrainConfig,
)
from jaxlm.safety import CheckpointConfig
from jaxlm.schema import to_dict
from jaxlm.workdir import MARKER, write_json
from launch.job import free_port

STEPS = 120
SAVE_EVERY = 20
PATIENCE_S = 180.0
"""How long a process may take on a busy machine; a hang then fails the test instead of the CI."""

SLOWLY = "evaluate.every=1 steps"
"""Override that makes each step long enough to be caught in."""

BASE = Config(
    model=ModelConfig(
        vocab_size=320,
        d_model=32,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        d_ff=64,
        dropout=(("0 rows", 0.1), ("60 steps", 0.0)),
        compute_dtype="float32",
    ),
    data=DataConfig(manifest="set by config_file", seq_len=32, block_rows=20),
    train=TrainConfig(batch_size=4, end=f"{STEPS} steps"),
    checkpoint=CheckpointConfig(every=f"{SAVE_EVERY} steps", keep=50),
    evaluate=EvaluateConfig(every="60 steps"),
    log=LogConfig(every="1 steps", tensorboard=False, peak_tflops=0.1),
)
"""1.6 epochs of `corpus`, with dropout for the first half."""


def corpus(root: Path) -> Path:
    """Two sources, two held-out types, a real tokenizer; returns the manifest's path."""
    sources = {"zh": [60, 50, 70], "en": [80, 40]}
    return make_corpus(root, sources, heldout={"zh": [12], "en": [9]}, tokenizer=True)


def config_file(path: Path, manifest: Path) -> Path:
    """Writes `BASE` for this corpus; returns `path`, a JSON file."""
    config = to_dict(BASE)
    config["data"]["manifest"] = str(manifest)
    write_json(path, config)
    return path


# ---- processes -----------------------------------------------------------------------------------


def train(config: Path, workdir: Path | str, *overrides: str) -> list[str]:
    """The command of one process; overrides as `train.end=10 steps`, flags as they are."""
    return _command("jaxlm", "train", config, workdir, overrides)


def launch(config: Path, workdir: Path | str, *overrides: str, processes: int = 2) -> list[str]:
    """The command of the local launcher."""
    return [*_command("launch", "local", config, workdir, overrides), f"--processes={processes}"]


def _command(
    module: str, name: str, config: Path, workdir: Path | str, overrides: Sequence[str]
) -> list[str]:
    place = [f"--config={config}", f"--workdir={workdir}"]
    rest = (o if o.startswith("--") else f"--config.{o}" for o in overrides)
    return [sys.executable, "-m", module, name, *place, *rest]


def apart() -> list[str]:
    """Flags of two processes that no launcher starts, besides `--process=N`."""
    return [f"--coordinator=127.0.0.1:{free_port()}", "--bind=127.0.0.1", "--processes=2"]


def environment(devices: int) -> dict[str, str]:
    """For a process with so many fake devices."""
    # Unoptimised code compiles in half the time; what is compared here all runs on it.
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    return {**os.environ, "XLA_FLAGS": flags, "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, devices: int = 1) -> Iterator[subprocess.Popen]:
    """A process with `devices` fake devices, output in `log`; killed if it is left running."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(devices),
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finish(command: Sequence[str], log: Path, devices: int = 1) -> tuple[int, str]:
    """Runs a process to its end: its exit code, and all that `log` says by then."""
    with running(command, log, devices) as process:
        code = process.wait(PATIENCE_S)
    return code, log.read_text()


def kill_when(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    """SIGKILL as soon as `condition`; fails if the process ended by itself before."""
    wait_until(condition, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it had ended before it was killed"


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen, patience_s: float = PATIENCE_S
) -> None:
    """Polls every millisecond while the process runs."""
    end = time.monotonic() + patience_s
    while not condition():
        assert process.poll() is None, f"exit code {process.returncode} before it was so"
        assert time.monotonic() < end, f"not so after {patience_s} s"
        time.sleep(0.001)


def says(log: Path, text: str) -> Callable[[], bool]:
    """Whether a log says this yet."""
    return lambda: log.exists() and text in log.read_text()


def children(pid: int) -> list[int]:
    """Processes that this one has started, none if it has ended (Linux)."""
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def processes(launcher: subprocess.Popen) -> dict[int, int]:
    """Number of each of a launcher's processes that is there -> its pid."""
    found = {}
    for child in children(launcher.pid):
        with contextlib.suppress(OSError):
            for argument in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                if argument.startswith(flag := b"--process="):
                    found[int(argument.removeprefix(flag))] = child
    return found


# ---- results -------------------------------------------------------------------------------------


def checkpoint(workdir: Path, step: int) -> Path:
    """Where the full checkpoint of a step lies."""
    return workdir / "checkpoints" / "full" / str(step)


def committed(workdir: Path) -> list[int]:
    """Steps with a finished checkpoint, in order."""
    markers = (workdir / "checkpoints" / "full").glob(f"*/{MARKER}")
    return sorted(int(marker.parent.name) for marker in markers)


def go_back(workdir: Path, step: int) -> None:
    """Makes of a run one that was killed after it had saved this step."""
    for later in committed(workdir):
        if later > step:
            shutil.rmtree(checkpoint(workdir, later))
    write_json(workdir / "status.json", {**workdirs.status(workdir), "saved": step})


def save_times(workdir: Path, step: int) -> tuple[float, float]:
    """When the first file of a checkpoint was written, and when its marker; the kernel's clock."""
    path = checkpoint(workdir, step)
    times = [p.stat().st_mtime for p in path.rglob("*") if p.is_file()]
    return min(times), (path / MARKER).stat().st_mtime


def unfinished(workdir: Path) -> list[Path]:
    """Saves that have begun and not ended."""
    found = (workdir / "checkpoints" / "full").glob("*")
    return [path for path in found if path.name.isdigit() and not (path / MARKER).exists()]


def state(workdir: Path, step: int = STEPS) -> dict[str, np.ndarray]:
    """Every array of a checkpoint on the host: step, position, parameters, optimizer state."""
    path = checkpoint(workdir, step) / "state"
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.metadata(path).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        restored = reader.restore(path, restore_args=as_numpy)
    leaves = jax.tree.leaves_with_path(restored)
    assert len(leaves) > 20
    return {jax.tree_util.keystr(key): np.asarray(value) for key, value in leaves}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype and array.tobytes() == other[name].tobytes(), name


def assert_close(one: dict[str, np.ndarray], other: dict[str, np.ndarray], atol: float) -> None:
    """Within rounding: sums in another order, over some steps of Adam."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=0, atol=atol, err_msg=name)


def losses(workdir: Path) -> dict[int, float]:
    """Step -> training loss, as the newest start logged it."""
    return {m["step"]: m["loss"] for m in workdirs.metrics(workdir) if "loss" in m}


def time_spent(workdir: Path) -> goodput.Goodput:
    """Where it went; checks that it is all of the time, and that what was lost is what was redone.

    For runs in which no step was done three times.
    """
    lines = ledger.read(workdir)
    found = goodput.of(lines)
    began = lines[0].time - lines[0].age_s
    assert abs(found.wall_s - (lines[-1].time - began)) < 0.01 * found.wall_s, found
    assert min(found.seconds.values()) >= 0
    begins = [i for i, line in enumerate(lines) if line.begins]
    starts = [start.step for start in workdirs.history(workdir)]
    assert [lines[i].step for i in begins] == starts
    reached = [max((line.step or 0 for line in lines[:i]), default=0) for i in begins]
    lost = sum(max(0, r - s) for r, s in zip(reached, starts, strict=True))
    assert found.lost_steps == lost, (found, starts, reached)
    return found
