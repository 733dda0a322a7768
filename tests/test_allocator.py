"""glibc's allocator is set for the commands that compute, and for nothing else."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlm import allocator, platforms

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")

SETTINGS = ":".join(f"{name}={v.value}" for name, v in allocator.TUNABLES.items())

LOOK = """
import json, os, pathlib, signal, subprocess, sys
from jaxlm import allocator
print(os.getpid(), flush=True)
allocator.settle(sys.argv[1:])
def tunables(process):
    # As it was given: glibc writes ends of strings into it.
    text = pathlib.Path(f"/proc/{process}/environ").read_bytes().replace(b"\\0glibc.", b":glibc.")
    lines = text.split(b"\\0")
    return [x.decode() for x in lines if x.startswith((b"GLIBC_", b"MALLOC_", b"JAXLM_"))]
child = subprocess.Popen(["sh", "-c", "echo && read _"], stdin=-1, stdout=-1)
child.stdout.readline()  # before it runs, its environment may read as empty
print(json.dumps([os.getpid(), sys.argv, tunables("self"), tunables(child.pid)]), flush=True)
child.kill()
if "--wait" in sys.argv:
    signal.pause()
sys.exit(78)
"""


@pytest.fixture
def look(tmp_path) -> Path:
    path = tmp_path / "look.py"
    path.write_text(LOOK)
    return path


def environment(**variables: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != allocator.VARIABLE}
    return {**kept, "PYTHONPATH": str(Path(allocator.__file__).parents[1]), **variables}


def looked(look: Path, *args: str, **variables: str) -> tuple[list[str], list[str]]:
    """Variables of a process with these arguments, and of one that it starts."""
    done = subprocess.run(
        [sys.executable, look, *args], capture_output=True, text=True, env=environment(**variables)
    )
    assert done.returncode == 78, done.stderr
    *pids, line = done.stdout.splitlines()
    pid, argv, own, child = json.loads(line)
    assert argv[1:] == list(args) and set(pids) == {str(pid)}  # it is the same process
    return own, child


@pytest.mark.parametrize("command", allocator.COMMANDS)
def test_a_command_that_computes_has_the_settings_and_its_children_not(look, command):
    own, child = looked(look, command, "--workdir=x y")
    assert own == [f"GLIBC_TUNABLES={SETTINGS}", "JAXLM_TUNABLES_BEFORE=null"]
    assert child == []


@pytest.mark.parametrize(
    "args",
    [(), ("status",), ("--help",), ("train", "--help"), ("train", allocator.FLAG), ("plan",)],
)
def test_others_have_not(look, args):
    assert looked(look, *args) == ([], [])


@pytest.mark.parametrize(
    "variables",
    [{"JAX_PLATFORMS": "cuda"}, {"JAX_PLATFORMS": "tpu,cpu"}, {"LD_PRELOAD": "libtcmalloc.so"}],
)
def test_another_platform_or_allocator_is_left_alone(look, variables):
    assert looked(look, "train", **variables) == ([], [])


def test_what_the_user_has_set_stands(look):
    own, child = looked(look, "train", GLIBC_TUNABLES="glibc.malloc.check=0")
    assert own[0] == f"GLIBC_TUNABLES=glibc.malloc.check=0:{SETTINGS}"
    assert child == ["GLIBC_TUNABLES=glibc.malloc.check=0"]
    assert looked(look, "train", GLIBC_TUNABLES=SETTINGS) == ([f"GLIBC_TUNABLES={SETTINGS}"],) * 2


@pytest.mark.parametrize("name", allocator.TUNABLES)
def test_one_that_the_user_has_set_is_not_set_again(name):
    given = allocator.tunables({allocator.VARIABLE: f"{name}=7"})
    assert f"{name}=" not in given and given.count("=") == len(allocator.TUNABLES) - 1


def test_old_names_count():
    found = allocator.tunables({"MALLOC_ARENA_MAX": "4", "MALLOC_TRIM_THRESHOLD_": "1"})
    assert "arena_max" not in found and "trim_threshold" not in found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_it(look, number):
    command = [sys.executable, look, "train", "--wait"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert "GLIBC_TUNABLES" in lines[-1]
        process.send_signal(number)
        assert process.wait() == -number


def jaxlm(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxlm", *args]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


def test_the_command_ends_as_it_would(tmp_path):
    """By `python -m jaxlm`: wrong usage, nothing there, and the flag is known."""
    assert jaxlm("train", "--lr=1").returncode == 2
    for flags in ([], [allocator.FLAG]):
        done = jaxlm("evaluate", f"--workdir={tmp_path}", *flags)
        assert done.returncode == 2 and "has a run started?" in done.stderr
    assert jaxlm("status", f"--workdir={tmp_path}", allocator.FLAG).returncode == 2


def test_the_settings_are_this_glibcs():
    """A name that glibc does not know, it ignores."""
    linker = next(iter(Path("/lib64").glob("ld-linux*")), None) or "/lib/ld-linux-aarch64.so.1"
    listed = subprocess.run([linker, "--list-tunables"], capture_output=True, text=True).stdout
    for name in allocator.TUNABLES:
        assert f"{name}: " in listed, listed


ARRAYS = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

def array(size):
    address = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(address), 64, ctypes.c_size_t(size)) == 0
    return address

libc.mallinfo2.restype = Info
before = []
for _ in range(50):
    arrays = [array(size << 20) for size in (64, 16, 32)]
    small = [libc.malloc(size) for size in (24, 40, 56, 72)]
    for address in before + arrays:
        libc.free(address)
    before = small
print(libc.mallinfo2().arena >> 20)
"""


def test_an_array_fits_where_one_of_its_size_was():
    """A step's arrays take the room of the last one's, with small requests in between."""
    done = subprocess.run(
        [sys.executable, "-c", ARRAYS],
        env=allocator.environment(environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    live = 64 + 16 + 32
    assert live <= int(done.stdout) < 2 * live


def test_a_call_inside_another_program_is_left_alone(monkeypatch):
    """`cli.main` is a function; only the command itself starts again."""
    from jaxlm import cli

    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it started again"))
    assert cli.main(["train", "--config=nowhere.py", "--workdir=x"]) == 2


def test_the_cpu_is_what_the_user_says_or_what_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert not platforms.is_cpu(tmp_path)
    monkeypatch.delenv("JAX_PLATFORMS")
    assert platforms.is_cpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert not platforms.is_cpu(tmp_path)
