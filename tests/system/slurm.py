"""A real Slurm on this machine: one node, all daemons of our own, in a directory."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

CONF = """\
ClusterName=test
FirstJobId={port}
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
SlurmdPort={slurmd_port}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=10
OverTimeLimit=0
SchedulerParameters=sched_interval=1,batch_sched_delay=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP GraceTime=60
PartitionName=urgent Nodes={host} PriorityTier=2 State=UP
"""
"""A job that goes back into the queue waits for `cred_expire` and ten seconds. Jobs of two clusters
on this machine have other numbers, from which their ports are made."""


@contextlib.contextmanager
def cluster(root: Path) -> Iterator[dict[str, str]]:
    """Inside, its commands find it with these variables of the environment."""
    for name in ("state", "spool"):
        (root / name).mkdir(parents=True)
    (root / "munge.key").write_bytes(os.urandom(1024))
    (root / "munge.key").chmod(0o400)
    host, (port, slurmd_port) = socket.gethostname().partition(".")[0], _ports()
    values = {"root": root, "host": host, "port": port, "slurmd_port": slurmd_port}
    (root / "slurm.conf").write_text(CONF.format(user=os.environ.get("USER", "root"), **values))
    env = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    names = ("key-file=munge.key", "socket=munge.sock", "pid-file=munged.pid")
    flags = [f"--{name.replace('=', f'={root}/')}" for name in names]
    flags += [f"--log-file={root}/munged.log", f"--seed-file={root}/munged.seed"]
    commands = (
        ["munged", "--foreground", "--force", *flags],
        ["slurmctld", "-D"],
        ["slurmd", "-D", "-N", host],
    )
    with contextlib.ExitStack() as stack:
        for command in commands:
            path = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
            assert path is not None, f"{command[0]}: apt-get install slurm-wlm munge"
            stack.enter_context(_running([path, *command[1:]], env, root / f"{command[0]}.log"))
        deadline = time.monotonic() + 60
        while "idle" not in _output(["sinfo", "--noheader", "--format=%T"], env):
            assert time.monotonic() < deadline, "no node is idle"
            time.sleep(0.1)
        yield env


@contextlib.contextmanager
def _running(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _output(command: list[str], env: dict[str, str]) -> str:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout


def _ports() -> tuple[int, int]:
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]
