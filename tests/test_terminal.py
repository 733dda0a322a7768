"""A terminal that hangs up, a reader that leaves, a full disk: real ones, under a process."""

import os
import subprocess
import sys

import pytest

from jaxlm import terminal

PROGRAM = """
import os, sys
from jaxlm import terminal
sys.stdin.readline()
for stream in (sys.stdout, sys.stderr):
    terminal.show("a line", stream)
    terminal.show("x" * 100_000, stream)
os.write(int(sys.argv[1]), b"went on")
terminal.let_go()
sys.exit(75)
"""


@pytest.mark.parametrize("end", ["pty", "pipe", "disk"])
def test_what_nobody_takes_is_dropped(end):
    if end == "disk":
        ours, theirs = None, os.open("/dev/full", os.O_WRONLY)
    else:
        ours, theirs = os.openpty() if end == "pty" else os.pipe()
    told, tell = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tell)],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        pass_fds=[tell],
        start_new_session=True,
    )
    os.close(theirs)
    os.close(tell)
    if ours is not None:
        os.close(ours)  # hangs up
    process.communicate(b"go\n", timeout=60)
    with os.fdopen(told, "rb") as file:
        assert file.read() == b"went on"
    assert process.returncode == 75


def test_what_is_taken_is_shown(capfd):
    terminal.show("one")
    terminal.show("two", sys.stderr)
    assert capfd.readouterr() == ("one\n", "two\n")


def test_a_stream_that_was_closed(tmp_path):
    with (tmp_path / "file").open("w") as file:
        pass
    terminal.show("one", file)


THREADS = """
import threading
from jaxlm import terminal

def show(line):
    for _ in range(2000):
        terminal.show(line)

for letter in "abcd":
    threading.Thread(target=show, args=[80 * letter]).start()
"""


def test_lines_of_several_threads_do_not_tear_each_other():
    """Without a buffer, as launchers have it, each write goes out by itself."""
    found = subprocess.run(
        [sys.executable, "-u", "-c", THREADS], capture_output=True, text=True, check=True
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 8000
    assert {*lines} == {80 * letter for letter in "abcd"}
