"""Barriers of two real processes: no device takes part, and who does not come is named."""

import json
import socket
import subprocess
import sys
import time

import pytest

from bench import runs
from launch.job import free_port

pytestmark = pytest.mark.system

PROGRAM = """
import json, os, sys, time
import jax
from jaxlm import checkpoint, cluster
from jaxlm.errors import PeerMissing
from jaxlm.safety import WatchConfig

me, port = int(sys.argv[1]), sys.argv[2]
place = (f"127.0.0.1:{port}", 2, me, "127.0.0.1")
cluster.start(*place, WatchConfig(barrier_minutes=1, heartbeat_seconds=60))
jax.devices()  # which all look for together
found = {"gathered": cluster.gather("both are here", {"process": me})}
if me == 1:
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    os._exit(0)
cluster._members = cluster._members._replace(barrier_s=1.0, restore_s=1.0)
try:
    cluster.gather("one is missing", me)
except PeerMissing as e:
    found["missing"], found["code"] = str(e), e.exit_code
options = checkpoint._barriers("full")
try:
    checkpoint.multihost.sync_global_processes("orbax", processes=options.active_processes)
except Exception as e:
    found["orbax"] = str(e)
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_barriers():
    port = free_port()
    start = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(i), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=runs.environment(1),
            text=True,
        )
        for i in range(2)
    ]
    with processes[0], processes[1]:
        out = processes[0].communicate(timeout=runs.PATIENCE_S)[0]
        other = processes[1].communicate(timeout=runs.PATIENCE_S)[0]
    zero, one = json.loads(out), json.loads(other)
    assert zero["gathered"] == one["gathered"] == [{"process": 0}, {"process": 1}]
    assert zero["code"] == 75
    host = socket.gethostname()
    message = f"1 of 2 did not reach 'one is missing' within 1 s: process 1 ({host})"
    assert zero["missing"] == message
    assert "orbax" in zero["orbax"] and "DEADLINE_EXCEEDED" in zero["orbax"]
    assert time.monotonic() - start < 60  # not Orbax's own 300 s
