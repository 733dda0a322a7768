"""A compiler's words are kept apart, and whoever waits for it hears that it is at work."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxlm.plan import log
from jaxlm.plan.log import Log


def test_what_is_written_to_standard_error_is_taken(capfd):
    with Log("compiling") as taken:
        os.write(2, b"E0000 a compiler's complaint\n")
    os.write(2, b"after\n")
    assert taken.text == "E0000 a compiler's complaint\n"
    assert capfd.readouterr().err == "after\n"


def test_long_work_gives_signs_of_life(capfd, monkeypatch):
    monkeypatch.setattr(log, "TICK_S", 0.01)
    with Log("compiling") as taken:
        os.write(2, b"a complaint\n")
        time.sleep(0.2)
    first, *_ = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"compiling: \d+ s so far", first)
    assert taken.text == "a complaint\n"


COMPILER = """
import hashlib, os, signal
from jaxlm.plan.log import Log
signal.signal(signal.SIGINT, signal.default_int_handler)
with Log("compiling"):
    os.write(2, b"last words")
    os.write(1, b"at work")
    {work}
"""


def compiler(work: str, directory) -> subprocess.Popen[bytes]:
    """A process that is in the middle of `work`, with `directory` for its temporary files."""
    command = [sys.executable, "-c", COMPILER.format(work=work)]
    environment = {**os.environ, "TMPDIR": str(directory)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdout.read(7) == b"at work"
    return process


def test_ctrl_c_does_not_wait_for_the_compiler(tmp_path):
    """C++ holds the main thread for a long time, and lets go of Python's lock."""
    with compiler("hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)", tmp_path) as process:
        try:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_takes_the_process_down_leaves_its_last_words(tmp_path):
    with compiler("os.abort()", tmp_path) as process:
        assert process.wait(timeout=60) == -signal.SIGABRT
    (left,) = tmp_path.glob(f"jaxlm-compiler-{process.pid}-*.log")
    assert left.read_bytes() == b"last words"


@pytest.fixture
def interrupted():
    """An event that a handler of the test's own sets."""
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    yield asked
    signal.signal(signal.SIGINT, before)


def test_a_handler_that_somebody_has_set_stays(interrupted):
    with Log("compiling"):
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.wait(60)
