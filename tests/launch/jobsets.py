"""JobSets for every accelerator of the table, and for what else changes one: the golden files.

python -m tests.launch.jobsets     # writes tests/golden/jobsets/*.json anew
"""

import json
from pathlib import Path
from typing import Any

from launch import jobset
from launch.jobset import Job
from launch.machines import MACHINES, parse

GOLDEN = Path(__file__).parents[1] / "golden/jobsets"
IMAGE = "us-docker.pkg.dev/project/images/jaxlm:1.0"
WORKDIR = "gs://bucket/runs/lm_7b"
SHAPES = {"v4": "2x2x4", "v5e": "4x8", "v5p": "4x4x8", "v6e": "16x16", "7x": "4x4x4"}
"""Of a TPU's golden file; GPUs: four nodes."""


def make(accelerator: str) -> Job:
    """A job on it, with defaults."""
    train = (f"--config=configs/lm_7b.py:{accelerator}",)
    return Job("lm-7b-aa4507", parse(accelerator), IMAGE, WORKDIR, train)


def cases() -> dict[str, Job]:
    """Name of the golden file -> job."""
    found = {name: make(f"{name}:{SHAPES.get(name, '4x8')}") for name in MACHINES}
    plain, alone = found["v5p"], make("h100:8")
    everything = Job(
        **{
            **vars(plain),
            "slices": 2,
            "spot": True,
            "queue": "team-a",
            "service_account": "trainer",
            "grace_s": 300,
            "max_restarts": 5,
            "disk_gb": 500,
        }
    )
    return found | {"v5p-everything": everything, "h100-one-node": alone}


def text(job: Job) -> str:
    """What kubectl is given, with line breaks."""
    return json.dumps(manifest(job), indent=1) + "\n"


def manifest(job: Job) -> dict[str, Any]:
    """As it is after JSON."""
    return json.loads(json.dumps(jobset.manifest(job)))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, job in cases().items():
        (GOLDEN / f"{name}.json").write_text(text(job), encoding="utf-8")
