"""A work directory, on a disk that all hosts see or in an object store: that it can be written, and
that one run alone does so.
"""

import contextlib
import fcntl
import os
import re
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from jaxlm import lease, storage, terminal
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.lease import Lease
from jaxlm.mirror import LOCK, PROBE, Mirror

type Workdir = Path | Mirror

AUTOTUNE = "autotune"
"""Where the choices of kernels are kept, if steps are to be deterministic on GPUs."""
ENDING_S, DEAD_S = 10.0, 120.0
"""How long a process of this host may take to die, and a server of NFS to know that a host has."""
PROBE_S = 3600.0
"""No start looks for a file of another for so long."""


def of(name: str) -> Workdir:
    """The work directory of this path or URL; `UserError` for one that cannot be used."""
    if storage.is_url(name):
        return Mirror(name)
    try:
        path = Path(name).expanduser()  # a shell leaves it in --workdir=~/x
    except RuntimeError as e:
        raise UserError(f"{name}: {e}; write the whole path") from None
    found = re.search(r"[*\[\]\\]", str(path.absolute()))
    if found is not None:  # checkpoints are saved there, and not found again
        raise UserError(
            f"{name}: {path.absolute()} has the character {found[0]}, which Orbax takes for a "
            "pattern; rename it, or choose another directory"
        )
    return path


def fetch(directory: Workdir, inside: str = "") -> None:
    """Has what is written in a directory of a work directory here, to read."""
    if isinstance(directory, Mirror):
        directory.fetch(inside)


def send(directory: Workdir, names: Sequence[str] | None = None) -> None:
    """Has what was written here, or these files alone, where others see it."""
    if isinstance(directory, Mirror):
        directory.send(names)


def try_to_send(directory: Workdir, within_s: float) -> None:
    """As much of it as can be sent in this time."""
    if isinstance(directory, Mirror):
        directory.try_to_send(within_s)


@contextlib.contextmanager
def shared(directory: Workdir, main: bool) -> Iterator[None]:
    """Inside, what a process of a run writes is where others see it, soon, and all at the end.

    `main`: the one that goes on with what is there.
    """
    if not isinstance(directory, Mirror):
        yield
        return
    if main:
        directory.fetch()
    directory.fetch(AUTOTUNE)
    with directory.sending():
        yield


def check_writable(workdir: Workdir) -> None:
    """Makes the directory, and a file in it; `EnvironmentProblem` says why it cannot."""
    with probe(workdir):
        pass


@contextlib.contextmanager
def probe(workdir: Workdir) -> Iterator[str]:
    """Makes the directory, and a file in it that is there inside: its name, used by nobody else.

    `EnvironmentProblem` says why it cannot.
    """
    name = f"{PROBE}{secrets.token_hex(8)}"
    if isinstance(workdir, Mirror):
        workdir.make()
        try:
            storage.write(f"{workdir}/{name}", b"probe")
        except FileNotFoundError:
            raise _unwritable(workdir, "no such bucket") from None
        try:
            yield name
        finally:
            storage.delete(f"{workdir}/{name}")
        return
    with contextlib.ExitStack() as stack:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            # A name of its own: in containers all hosts may have one process number.
            file = tempfile.NamedTemporaryFile(dir=workdir, prefix=PROBE, buffering=0)  # noqa: SIM115
            stack.enter_context(file).write(b"probe")
        except FileExistsError as e:
            raise _unwritable(workdir, "it is a file, or a link to nothing") from e
        except OSError as e:
            raise _unwritable(workdir, e.strerror) from e
        yield Path(file.name).name


def sees(workdir: Workdir, name: str, within_s: float) -> bool:
    """Whether a file that another host has just written is there, now or soon."""
    deadline_s = time.monotonic() + within_s
    while not _is_there(workdir, name):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True


def _is_there(workdir: Workdir, name: str) -> bool:
    if isinstance(workdir, Mirror):
        return storage.modified(f"{workdir}/{name}") is not None
    with contextlib.suppress(OSError):
        (workdir / name).stat()
        return True
    # A client of NFS remembers what was not there, until the directory is opened anew.
    for directory in (*reversed(workdir.absolute().parents), workdir):
        with contextlib.suppress(OSError):
            os.close(os.open(directory, os.O_RDONLY))
    return False


def check_could_write(workdir: Workdir) -> None:
    """`check_writable`, as far as it can be told without writing anything."""
    if isinstance(workdir, Mirror):
        storage.entries(workdir.url)
        return
    there = next(p for p in (workdir.absolute(), *workdir.absolute().parents) if p.exists())
    if not there.is_dir():
        raise _unwritable(workdir, f"{there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unwritable(workdir, f"no permission in {there}")


def _unwritable(workdir: Workdir, why: str | None) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"--workdir={workdir}: cannot be written ({why}); "
        "choose a directory that this user may write, on a disk with room"
    )


@contextlib.contextmanager
def lock(workdir: Workdir, lost: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Holds the directory against a second run; it is let go when the process ends, however.

    Waits a little, since the process of the start before may still be dying. `EnvironmentProblem`
    if it is held. The lock can be lost: `lost` is told why, and what this yields raises then; in a
    store another thread notices it too.
    """
    if isinstance(workdir, Mirror):
        with Lease(f"{workdir}/{LOCK}", lost) as held:
            workdir.guard = held.ensure
            yield held.confirm
    else:
        with _lock(workdir) as file:

            def ensure() -> None:
                if _is_at(file, workdir / LOCK):
                    return
                why = f"{workdir / LOCK}: was deleted or replaced; another run may be there now"
                lost(why)
                raise EnvironmentProblem(why)

            yield ensure


@contextlib.contextmanager
def _lock(workdir: Path) -> Iterator[IO[str]]:
    began_s, told = time.monotonic(), False
    while True:
        with (workdir / LOCK).open("a+") as file:
            if _locked(file, fcntl.LOCK_EX, workdir):
                if not _is_at(file, workdir / LOCK):
                    continue  # it was deleted meanwhile
                file.truncate(0)
                file.write(f"{os.getpid()} {socket.gethostname()}")
                file.flush()
                _delete_old_probes(workdir)
                yield file
                return
            file.seek(0)
            pid, _, host = file.read().partition(" ")
        here = host in ("", socket.gethostname())
        if time.monotonic() - began_s > (ENDING_S if here else DEAD_S):
            raise EnvironmentProblem(
                f"--workdir={workdir}: pid {pid or '?'}{f' on {host}' if host else ''} is "
                "training there; wait for it, stop it, or choose another directory"
            )
        if not (here or told):
            line = f"{workdir}: is held by pid {pid} on {host}; waiting to see whether it is"
            terminal.show(f"{line} dead, for up to {DEAD_S:.0f} s", sys.stderr)
            told = True
        time.sleep(0.2)


def _delete_old_probes(workdir: Path) -> None:
    """Of processes that were killed; a younger one may be looked for."""
    for path in workdir.glob(f"{PROBE}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > PROBE_S:
                path.unlink()


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether it is this file that has the name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _locked(file: IO[str], how: int, workdir: Path) -> bool:
    """Whether the file is locked now; `EnvironmentProblem` if its file system cannot."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        raise EnvironmentProblem(
            f"--workdir={workdir}: its file system cannot keep a second run out ({e.strerror}); "
            "mount it with locks (Lustre: flock), or choose another"
        ) from None
    return True


def holder(workdir: Workdir) -> int | None:
    """The pid of the process that trains there, 0 if it has not said it; None without one."""
    if isinstance(workdir, Mirror):
        held = lease.holder(f"{workdir}/{LOCK}")
        return held and held.pid
    try:
        with (workdir / LOCK).open() as file:
            if not _locked(file, fcntl.LOCK_SH, workdir):
                pid = file.read().partition(" ")[0]
                return int(pid) if pid.isdecimal() else 0
    except (OSError, EnvironmentProblem):
        pass
    return None
