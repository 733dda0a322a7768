"""Plans for every accelerator that comes as a TPU VM, and for what else changes one: golden files.

python -m tests.launch.tpu_vms     # writes tests/golden/tpu_vms/*.sh anew
"""

from pathlib import Path

from launch import tpu_vm, tpu_vm_arguments
from launch.machines import MACHINES
from launch.tpu_vm_arguments import Run

GOLDEN = Path(__file__).parents[1] / "golden/tpu_vms"
SHAPES = {"v4": "2x2x4", "v5e": "4x8", "v5p": "4x4x8", "v6e": "16x16"}


def make(accelerator: str, *more: str) -> Run:
    """A run on it."""
    arguments = (
        f"--accelerator={accelerator}",
        "--zone=us-east5-b",
        f"--config=configs/lm_7b.py:{accelerator}",
        "--workdir=gs://bucket/runs/lm_7b",
        "--image=us-docker.pkg.dev/project/images/jaxlm:1.0",
    )
    return tpu_vm_arguments.run(*tpu_vm_arguments.read((*arguments, *more), ""))


def cases() -> dict[str, Run]:
    """Name of the golden file -> run."""
    chips = [name for name, machine in MACHINES.items() if machine.tpu_vm]
    everything = (
        *("--slices=2", "--spot", "--project=my-project", "--name=big", "--wait=6h"),
        *("--service-account=trainer@my-project.iam.gserviceaccount.com", "--grace-seconds=300"),
        *("--runtime-version=v2-alpha-tpuv6e", "--setup=df -h /", "--gcloud=--network=fast"),
        *("--gcloud=--internal-ips", "--ssh=--internal-ip", "--config.train.end=10 steps"),
    )
    return {
        **{name: make(f"{name}:{SHAPES[name]}") for name in chips},
        "v6e-everything": make("v6e:16x16", *everything),
    }


def text(run: Run) -> str:
    """What --dry-run prints."""
    return f"{tpu_vm.plan(run)}\n"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, run in cases().items():
        (GOLDEN / f"{name}.sh").write_text(text(run), encoding="utf-8")
