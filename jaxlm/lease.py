"""The lock of a work directory in an object store: an object that its holder writes ever again.

A write is conditional: the store does it only if the object is the one that the writer saw last, so
of two that want it one gets it. No two clocks are compared: a holder that has not written while
another process looked on for `DEAD_S` is dead. One that was on this machine is looked for there.
"""

import json
import math
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from jaxlm import storage, terminal
from jaxlm.errors import EnvironmentProblem

RENEW_S, DEAD_S = 10.0, 60.0
"""Between the writes of a holder, and without any until it is dead."""
REFUSE_S = 45.0
"""One that writes for so long while another process looks on is no process about to end."""
LOOK_S = 1.0
"""Between the looks of one that waits."""
ANSWER_S = 30.0
"""That a request may take, its client's own retries included."""


class Lost(EnvironmentProblem):
    """Another process has taken the lease."""


class Holder(NamedTuple):
    """What the object says."""

    name: str
    """Drawn anew by each process."""
    host: str
    machine: str
    """Where its pid means something: a boot of a machine, and a container on it."""
    pid: int
    time: float
    """When it was written, by its own clock; seconds since 1970."""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"

    @property
    def is_dead(self) -> bool:
        """Whether it was on this machine, and is no more."""
        if self.machine != _machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False


class _Seen(NamedTuple):
    generation: bytes
    """The store's name for this state of the object, or for its absence."""
    holder: Holder | None


class Lease:
    """Held inside `with`."""

    def __init__(self, url: str, lost: Callable[[str], None]):
        """`url`: of the object. `lost`: told why, by another thread, if it is held no more."""
        self._url, self._lost = url, lost
        self._name = secrets.token_hex(8)
        self._generation = b""
        """Of the object as this process wrote it."""
        self._written_s = -math.inf
        """When it did, by `_now_s`, before it asked for it."""
        self._one_at_a_time = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="jaxlm-lease", daemon=True)

    def __enter__(self) -> Self:
        """Waits until a holder that may be dead is known to be.

        `EnvironmentProblem` if one is alive, and what `storage.tried` raises.
        """
        self._store = _open(self._url)
        seen = self._look()
        unchanged_s, same_holder_s = 0.0, time.monotonic()
        told = False
        while not self._may_take(seen, unchanged_s) or not self._write(seen.generation):
            if not told and seen.holder is not None:
                line = f"{self._url}: is held by {seen.holder}; waiting to see whether it lives on"
                terminal.show(line, sys.stderr)
                told = True
            time.sleep(LOOK_S)
            now = self._look()
            if now.generation == seen.generation:
                unchanged_s += LOOK_S  # alone: a store that was away kept its holder from writing
                continue
            unchanged_s, now_s = 0.0, time.monotonic()
            if now.holder is None or seen.holder is None or now.holder.name != seen.holder.name:
                same_holder_s = now_s
            elif now_s - same_holder_s > REFUSE_S:
                raise EnvironmentProblem(
                    f"{self._url}: {now.holder} is training there; wait for it, stop it, or choose "
                    "another directory"
                )
            seen = now
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(ANSWER_S)
        try:
            with self._one_at_a_time:
                self._store.write("", None, if_equal=self._generation).result(timeout=ANSWER_S)
        except Exception as e:  # whoever comes next waits for it
            terminal.show(f"{self._url}: could not be deleted ({e})", sys.stderr)

    def confirm(self) -> None:
        """`Lost` if another process has taken it; an error of the client if none can tell."""
        with self._one_at_a_time:
            if not self._write(self._generation):
                now = self._look().holder
                raise Lost(
                    f"{self._url}: was deleted or replaced; another run may be there now"
                    if now is None
                    else f"{self._url}: this process did not write to it for too long, and {now} "
                    "has taken it over"
                )

    def ensure(self) -> None:
        """`confirm`, if the last write was so long ago that it may be lost."""
        if _now_s() - self._written_s > DEAD_S / 2:
            self.confirm()

    def _renew(self) -> None:
        while not self._closing.wait(RENEW_S):
            try:
                self.confirm()
            except Lost as e:
                if not self._closing.is_set():
                    self._lost(str(e))
                return
            except Exception:  # the store fails; whether it was lost is seen when it is back
                continue

    def _may_take(self, seen: _Seen, unchanged_s: float) -> bool:
        return seen.holder is None or seen.holder.is_dead or unchanged_s > DEAD_S

    def _look(self) -> _Seen:
        found: Any = storage.tried(self._url, lambda: self._store.read("").result(timeout=ANSWER_S))
        return _Seen(found.stamp.generation, _parsed(found.value))

    def _write(self, generation: bytes) -> bool:
        """Whether it was the one to write."""
        me = Holder(self._name, socket.gethostname(), _machine(), os.getpid(), time.time())
        text, asked_s = json.dumps(me._asdict()), _now_s()
        written: Any = storage.tried(
            self._url,
            lambda: self._store.write("", text, if_equal=generation).result(timeout=ANSWER_S),
        )
        if written.generation:
            self._generation, self._written_s = written.generation, asked_s
            return True
        now = self._look()  # an answer may have been lost, and the write done again
        if now.holder is not None and now.holder.name == self._name:
            self._generation, self._written_s = now.generation, asked_s
            return True
        return False


def holder(url: str) -> Holder | None:
    """Who holds a lease, by its own clock and this one; None if nobody does."""
    found: Any = storage.tried(url, lambda: _open(url).read("").result(timeout=ANSWER_S))
    held = _parsed(found.value)
    if held is None or held.is_dead or time.time() - held.time > DEAD_S:
        return None
    return held


def _open(url: str) -> Any:
    import tensorstore

    return storage.tried(url, lambda: tensorstore.KvStore.open(storage.kvstore(url)).result())


def _parsed(text: bytes) -> Holder | None:
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):  # it is not there, or it is no lease
        return None


def _now_s() -> float:
    """By a clock that also goes while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # no Linux: nobody is known to be dead
        return secrets.token_hex(8)
