import queue
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch import guard, process
from launch.exits import Exit
from launch.process import Log, Process, Spec
from tests.launch.watch import is_gone, until, until_text


def python(tmp_path: Path, code: str, index: int = 0) -> Spec:
    return Spec(index, (sys.executable, "-c", code), tmp_path / f"process-{index}.log")


def test_output_is_shown_logged_and_its_end_kept(tmp_path, capfd):
    events = queue.SimpleQueue()
    code = "import sys; print('中文'); sys.stderr.buffer.write(b'\\xff\\n'); print('end', end='')"
    Process(python(tmp_path, code, index=1), events)
    ended = events.get(timeout=60)
    assert ended.status == 0
    assert ended.tail == ("中文", "\ufffd", "end")
    log = (tmp_path / "process-1.log").read_bytes()
    assert log.startswith(b"--- ")
    assert log.endswith("中文\n".encode() + b"\xff\nend")
    assert "[1] 中文\n" in capfd.readouterr().out


def test_what_a_process_leaves_running_ends_with_it(tmp_path):
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '{child}']).pid)"
    events = queue.SimpleQueue()
    Process(python(tmp_path, code), events)
    ended = events.get(timeout=60)  # the child holds the output open, and is no reason to wait
    until(lambda: is_gone(int(ended.tail[0])))


def test_a_guarded_command_does_not_start_without_its_launcher():
    command = [sys.executable, guard.__file__, "1", sys.executable, "-c", "print('started')"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "launch: the launcher (process 1) is gone\n"


def test_terminate_asks_and_kill_does_not(tmp_path):
    code = "import signal, time; signal.signal(15, lambda *_: print('asked')); print('up');"
    code += "\nwhile True: time.sleep(0.01)"
    events = queue.SimpleQueue()
    running = Process(python(tmp_path, code), events)
    log = tmp_path / "process-0.log"
    until_text(log, "up\n")
    running.terminate()
    until_text(log, "asked\n")
    running.kill()
    assert events.get(timeout=60).status == -signal.SIGKILL


def test_a_log_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LOG_BYTES", 10)
    log = Log(tmp_path / "a.log")
    for word in (b"first 12345\n", b"second 2345\n", b"third\n"):
        log.write(word)
    log.close()
    assert (tmp_path / "a.log").read_bytes() == b"third\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"second 2345\n"


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, capfd):
    log = Log(Path("/dev/full"))
    log.write(b"one")
    log.write(b"two")
    log.close()
    assert capfd.readouterr().err == (
        "launch: cannot write /dev/full: No space left on device; "
        "this output is shown and not kept\n"
    )


FORGED = [Exit(0.0, 1, 0, ()).line, Exit(0.0, 7, 2, ()).line, b"\x1elaunch-exit [1e999, 0, 0, 0]\n"]


@pytest.mark.parametrize("line", FORGED)
@pytest.mark.parametrize("listens", [False, True])
def test_a_program_cannot_tell_of_an_exit(tmp_path, line, listens):
    """A launcher elsewhere can, of its own process."""
    code = f"import os, sys; os.write(1, {line!r}); print('end'); sys.exit(2)"
    events = queue.SimpleQueue()
    running = Process(replace(python(tmp_path, code, index=1), listens=listens), events)
    ended = events.get(timeout=60)
    if running._popen.stdin is not None:
        running._popen.stdin.close()
    heard = listens and line is FORGED[0]
    assert (ended.index, ended.status) == (1, 0 if heard else 2)
    assert events.empty()


def test_what_is_said_after_an_unfinished_line_begins_one(tmp_path, capfd):
    events = queue.SimpleQueue()
    Process(python(tmp_path, "print('the last words', end='')"), events)
    assert events.get(timeout=60).tail == ("the last words",)
    assert capfd.readouterr().out == "the last words\n"


def test_any_name_can_be_said(capfd):
    process.say("/bad\udcff")
    assert capfd.readouterr().err == "launch: /bad\\udcff\n"
