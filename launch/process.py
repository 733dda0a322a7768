"""One process on this machine: started, shown, logged, signalled; its exit becomes an event."""

import contextlib
import errno
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TextIO

from launch import exits, guard
from launch.exits import Exit

TAIL_LINES = 20
LOG_BYTES = 64 << 20
"""A log that grows past this becomes `<name>.log.1`, in place of the one before."""
_LINE_BYTES = 1 << 16
_DRAIN_S = 5.0
_SIGNAL_S = 60.0
"""That a signaller may take, which asks hosts that may be gone."""
FAR_S = 10.0
"""That a launcher elsewhere may take to kill what it runs."""

type Events = queue.SimpleQueue[Exit | signal.Signals]
"""What a launcher waits for: the end of a process, or a signal to itself."""


@dataclass(frozen=True)
class Spec:
    """What is to be run: plain data."""

    index: int
    command: tuple[str, ...]
    log: Path
    signaller: tuple[str, ...] = ()
    """Command that sends a signal, TERM in place of `{signal}`, to what the process has started on
    other hosts: `srun` kills all of that at a SIGTERM. None: there is nothing of the kind."""
    listens: bool = False
    """Whether the names of signals go to its standard input: of ssh, to a launcher elsewhere."""


class Process:
    """A running `Spec`, in a session of its own; puts its `Exit` on `events` when it ends.

    Output goes to the log, and to our standard output: process 0 as it is, others after `[index] `.
    """

    def __init__(self, spec: Spec, events: Events):
        self._spec, self._events = spec, events
        self._far = spec.listens or spec.index == exits.OF_ALL
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._told: Exit | None = None
        self._popen = subprocess.Popen(
            guard.command(spec.command),
            stdin=subprocess.PIPE if spec.listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def terminate(self) -> None:
        """Asks the process to save and end; its own children are its own affair."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        name = signal.Signals(number).name.removeprefix("SIG")
        if self._spec.listens:
            assert self._popen.stdin is not None
            with contextlib.suppress(OSError):  # it is gone
                os.write(self._popen.stdin.fileno(), f"{name}\n".encode())
        elif self._spec.signaller:
            command = [word.replace("{signal}", name) for word in self._spec.signaller]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    timeout=_SIGNAL_S,
                    check=False,
                    start_new_session=True,  # a second Ctrl-C is for us alone
                )
        else:
            self._popen.send_signal(number)

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        if self._spec.signaller and self._popen.poll() is None:
            self._popen.terminate()  # `srun` kills all that it started, and then ends
        elif self._spec.listens and self._popen.poll() is None:
            self.signal(signal.SIGKILL)
            threading.Thread(target=self._give_up_on, daemon=True).start()
        else:
            self._kill()

    def _give_up_on(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(FAR_S)
            return
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def _wait(self) -> None:
        status = self._popen.wait()
        ended = time.monotonic()
        self.kill()  # what it left running would hold its output open
        self._reader.join(_DRAIN_S)
        lost = self._far and status not in (exits.DONE, exits.USAGE, exits.ENVIRONMENT)
        tail = tuple(self._tail)
        self._events.put(self._told or Exit(ended, self._spec.index, status, tail, lost=lost))

    def _read(self) -> None:
        assert self._popen.stdout is not None
        whose = "" if self._spec.listens or self._spec.index <= 0 else f"[{self._spec.index}] "
        with contextlib.closing(Log(self._spec.log)) as log, self._popen.stdout as output:
            log.write(f"--- {time.strftime('%F %T')} {self._spec.command}\n".encode())
            last = b"\n"
            while line := output.readline(_LINE_BYTES):
                if self._hears(line):
                    continue
                last = line if self._far else exits.untold(line)
                log.write(last)
                show(sys.stdout, whose.encode() + last)
                self._tail.append(last.decode(errors="replace").rstrip())
            if not last.endswith(b"\n"):  # what we say next begins a line
                show(sys.stdout, b"\n")

    def _hears(self, line: bytes) -> bool:
        """Whether a launcher elsewhere tells of an exit; of one process, if it stands for one."""
        exit_ = exits.told(line) if self._far else None
        if exit_ is not None and exit_.index == self._spec.index:
            self._told = exit_  # its end follows
        elif exit_ is not None and self._spec.index == exits.OF_ALL:
            self._events.put(exit_)
        else:
            return False
        return True


class Log:
    """A file to append to, of bounded size.

    It never raises: if a full disk stopped the reading, the process would block on its own output.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: FileIO | None = None
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            self._give_up(e)

    def write(self, data: bytes) -> None:
        """Appends; a file that has grown past `LOG_BYTES` is set aside for a new one."""
        if self._file is None:
            return
        try:
            self._file.write(data)
            if self._file.tell() > LOG_BYTES:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = self._path.open("ab", buffering=0)
        except OSError as e:
            self._give_up(e)

    def close(self) -> None:
        """Ends the log."""
        if self._file is not None:
            self._file.close()

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._file = None
        say(f"cannot write {self._path}: {error.strerror}; this output is shown and not kept")


def say(text: str) -> None:
    """The launcher's own word, on standard error."""
    show(sys.stderr, f"launch: {text}\n".encode(errors="backslashreplace"))


def explained(error: OSError, name: str = "") -> str:
    """What could not be done, with what or else with `name`, and what helps."""
    remedies = {
        errno.EMFILE: "raise `ulimit -n`: each process takes some here",
        errno.EAGAIN: "raise `ulimit -u`, or run fewer processes",
        errno.EPERM: "do it as the user who started it",
    }
    remedy = remedies.get(error.errno or 0, "choose a --workdir that can be written")
    return f"{error.filename or name}: {error.strerror}; {remedy}"


def show(stream: TextIO | None, data: bytes) -> None:
    """Writes at once, past the stream's buffer: what stayed there would change our exit code.

    What cannot be written is dropped, since a run does not end because nobody watches it: a reader
    has left, a terminal is gone, a disk is full.
    """
    with contextlib.suppress(OSError):
        while data and stream is not None:
            data = data[os.write(stream.fileno(), data) :]
