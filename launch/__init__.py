"""Starts `jaxlm train`, or a data build, where it is to run: a launcher for each kind of place.

Standard library only, and of jaxlm what says whether a URL may be shown: else the two meet at the
command line, the exit codes and `status.json`.
"""

from collections.abc import Callable, Sequence

from launch import gke, host, local, ray, slurm, ssh, tpu_vm

LAUNCHERS: dict[str, Callable[[Sequence[str]], int]] = {
    "gke": gke.main,
    "host": host.main,
    "local": local.main,
    "ray": ray.main,
    "slurm": slurm.main,
    "ssh": ssh.main,
    "tpu-vm": tpu_vm.main,
}
"""Name on the command line -> the launcher: arguments after the name in, exit code out."""
