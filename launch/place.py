"""Which process of a job this host's is, and where all meet: by flags, or by what runs the job.

Sources: slurm.schedmd.com/srun.html (environment of a task), kubernetes.io/docs/concepts/workloads/
controllers/job (completion index), cloud.google.com/tpu/docs (metadata of TPU VMs).
"""

import os
import re
import subprocess
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PORT = 61_440
"""Of the coordinator; of jobs that may share a host, the first of `PORTS` others."""
PORTS = 4096
METADATA_S = 60.0


@dataclass(frozen=True)
class Place:
    """One process among those of a job."""

    process: int
    processes: int
    coordinator: str
    """HOST:PORT of process 0."""
    bind: str = ""
    """Address at which the coordinator listens; empty: everywhere."""

    @property
    def flags(self) -> tuple[str, ...]:
        """For `jaxlm train`."""
        if self.processes == 1:
            return ()
        bind = (f"--bind={self.bind}",) if self.bind else ()
        return (
            f"--coordinator={self.coordinator}",
            *bind,
            f"--processes={self.processes}",
            f"--process={self.process}",
        )


def of_slurm(env: Mapping[str, str] = os.environ) -> Place:
    """Of a task of a step: one process each. `ValueError` outside of one."""
    process, processes = _number(env, "SLURM_PROCID"), _number(env, "SLURM_NTASKS")
    job, nodes = _number(env, "SLURM_JOB_ID"), _word(env, "SLURM_STEP_NODELIST")
    command = ("scontrol", "show", "hostnames", nodes)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise ValueError(f"{' '.join(command)}: failed ({e}); is this a task of Slurm?") from None
    first = done.stdout.split()[0]
    return Place(process, processes, f"{first}:{PORT + job % PORTS}")


def port_of(workdir: str) -> int:
    """Of the coordinator of a job that has no number: jobs differ in their work directories."""
    return PORT + zlib.crc32(workdir.encode()) % PORTS


def of_jobset(env: Mapping[str, str] = os.environ) -> Place:
    """Of a pod that `launch.jobset` describes."""
    job, pods = _number(env, "JAXLM_JOB_INDEX"), _number(env, "JAXLM_PODS_PER_JOB")
    process = job * pods + _number(env, "JOB_COMPLETION_INDEX")
    return Place(process, _number(env, "JAXLM_PROCESSES"), _word(env, "JAXLM_COORDINATOR"))


def of_tpu_vm(env: Mapping[str, str] = os.environ) -> Place:
    """Of a worker of a TPU slice, or of several, by Google's metadata server.

    `GCE_METADATA_HOST` names another server, as for Google's own libraries.
    """
    worker = int(_metadata(env, "agent-worker-number"))
    # In the old form name:id:ip, else the host alone.
    endpoints = _metadata(env, "worker-network-endpoints").split(",")
    hosts = [endpoint.rpartition(":")[2] for endpoint in endpoints]
    about = dict(re.findall(r"^(MEGASCALE_\w+): *'?([^'\n]*)'?", _metadata(env, "tpu-env"), re.M))
    slices, at = int(about.get("MEGASCALE_NUM_SLICES", 1)), int(about.get("MEGASCALE_SLICE_ID", 0))
    first = about.get("MEGASCALE_COORDINATOR_ADDRESS", hosts[0]).partition(":")[0]
    return Place(at * len(hosts) + worker, slices * len(hosts), f"{first}:{PORT}")


PLACES: dict[str, Callable[[], Place]] = {
    "jobset": of_jobset,
    "slurm": of_slurm,
    "tpu-vm": of_tpu_vm,
}
"""What runs a job -> where this host is in it."""


def _word(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise ValueError(f"{name} is not set; this host's place can be given by --process and more")
    return env[name]


def _number(env: Mapping[str, str], name: str) -> int:
    word = _word(env, name)
    if not word.isdecimal():
        raise ValueError(f"{name}={word}: is no number")
    return int(word)


def _metadata(env: Mapping[str, str], name: str) -> str:
    host = env.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=METADATA_S) as answer:
            return answer.read().decode()
    except OSError as e:
        raise ValueError(f"{url}: {e}; is this a TPU VM?") from None
