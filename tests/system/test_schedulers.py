"""What a scheduler says in the environment does not take devices away from a process."""

import json
import subprocess
import sys

import pytest

from bench import runs
from launch.local import free_port

pytestmark = pytest.mark.system

PROGRAM = """
import json, os, sys
import jax
from jaxlm import cluster
from jaxlm.safety import WatchConfig

me, port = int(sys.argv[1]), sys.argv[2]
cluster.start(f"127.0.0.1:{port}", 2, me, "127.0.0.1", WatchConfig(barrier_minutes=1))
visible = [jax.config._read(f"jax_{kind}_visible_devices") for kind in ("cuda", "rocm")]
print(json.dumps([jax.process_index(), jax.local_device_count(), jax.device_count(), visible]))
sys.stdout.flush()
cluster.gather("both have seen them", True)
os._exit(0)
"""


def slurm(process: int) -> dict[str, str]:
    """As srun sets them, two nodes with a task each."""
    return {
        "SLURM_JOB_ID": "12345",
        "SLURM_STEP_NODELIST": "node[001-002]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(process),
        "SLURM_LOCALID": "0",
    }


def open_mpi(process: int) -> dict[str, str]:
    """As mpirun sets them."""
    return {
        "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(process),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


@pytest.mark.parametrize("scheduler", [slurm, open_mpi])
def test_a_process_has_all_devices_of_its_node(scheduler):
    """JAX would take the one of the task's number, and of the GPUs make the others invisible."""
    port = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(i), port],
            stdout=subprocess.PIPE,
            env={**runs.environment(devices=2), **scheduler(i)},
            text=True,
        )
        for i in range(2)
    ]
    with processes[0], processes[1]:
        found = [json.loads(p.communicate(timeout=runs.PATIENCE_S)[0]) for p in processes]
    assert found == [[0, 2, 4, ["all", "all"]], [1, 2, 4, ["all", "all"]]]
