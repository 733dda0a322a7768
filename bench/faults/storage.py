"""Storage that is full, read-only, slow, or fails under one of two processes."""

import contextlib
import os
import re
import resource
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from bench import runs
from bench.faults.place import PLAIN, Outcome, Place
from jaxlm import integrity
from jaxlm import workdir as workdirs

FAILED = "could not be saved"


def inside(*lines: str) -> list[str]:
    """Runs shell lines as somebody who may mount, and whose mounts nobody else sees."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines)]


# ---- a disk without room -------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def _fill(disk: Path, ballast: Path) -> None:
    """Leaves room for small files alone; again and again, since a run deletes old checkpoints."""
    free = os.statvfs(disk)
    more = free.f_bavail * free.f_frsize - 64 * 1024
    if more > 0:
        with contextlib.suppress(OSError), ballast.open("ab") as file:  # the run was faster
            file.write(bytes(more))


def full_disk(place: Place) -> Outcome:
    """Fills the disk of a run behind a checkpoint, and makes room behind the first failed save."""
    outcome = Outcome()
    log = place.root / "run.log"
    with small_disk(place.root / "disk") as disk:
        workdir, ballast = disk / "run", disk / "ballast"
        command = runs.train(
            place.small, workdir, *PLAIN, runs.SLOWLY, "checkpoint.every=10 steps",
            "checkpoint.keep=1",
        )  # fmt: skip
        with runs.running(command, log) as process:
            for i in range(place.tries):
                with outcome.trying():
                    runs.wait_until(lambda: bool(runs.committed(workdir)), process)
                    before, said = runs.committed(workdir)[-1], _count(log)
                    runs.wait_until(
                        lambda said=said: _fill(disk, ballast) or _count(log) > said, process
                    )
                    kept = runs.committed(workdir)[-1]
                    assert kept >= before, "the checkpoint before is gone"
                    integrity.verify(epath.Path(runs.checkpoint(workdir, kept)))
                    ballast.unlink()
                    if i + 1 < place.tries:
                        runs.wait_until(
                            lambda kept=kept: runs.committed(workdir)[-1:] > [kept], process
                        )
            code = process.wait(runs.PATIENCE_S)
        output = log.read_text()
        with outcome.afterwards():
            assert code == 0 and "No space left on device" in output, output[-300:]
            assert "ERROR:" not in output  # of Orbax and asyncio, hundreds of lines
            assert runs.committed(workdir) == [runs.STEPS]
            assert workdirs.status(workdir)["saved"] == runs.STEPS
            whole = place.undisturbed(place.small, *PLAIN)
            runs.assert_same(runs.state(workdir), runs.state(whole))
    return outcome


def _count(log: Path) -> int:
    return log.read_text().count(FAILED) if log.exists() else 0


def read_only(place: Place) -> Outcome:
    """Starts a run where nothing can be written."""
    outcome, workdir = Outcome(), place.root / "run"
    workdir.mkdir()
    command = inside(
        f"mount --bind {workdir} {workdir}",
        f"mount -o remount,bind,ro {workdir}",
        shlex.join(runs.train(place.small, workdir)),
    )
    with outcome.trying():
        output = place.refused(command, "read-only", 78)
        assert (
            f"jaxlm train: --workdir={workdir}: cannot be written (Read-only file system); "
            "choose a directory that this user may write, on a disk with room"
        ) in output
        assert "compiling" not in output and list(workdir.iterdir()) == []
    return outcome


# ---- under one of two processes ------------------------------------------------------------------


def _unwritable(process: subprocess.Popen, full: Path, broken: bool) -> None:
    """What this process sees of the directory can be written, or not."""
    place = ["nsenter", f"--target={process.pid}", "--user", "--mount", "--preserve-credentials"]
    there = f"mount --bind {full} {full} && mount -o remount,bind,ro {full}"
    subprocess.run([*place, "sh", "-c", there if broken else f"umount {full}"], check=True)


def _half_way(process: subprocess.Popen, _: Path, broken: bool) -> None:
    """Its files cannot grow past some length: directories and small files are still made."""
    most = 64 << 10 if broken else resource.RLIM_INFINITY
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


ONE_SIDED: dict[Callable[[subprocess.Popen, Path, bool], None], str] = {
    _unwritable: "Read-only file system",
    _half_way: "File too large",
}


def one_cannot_save(place: Place) -> Outcome:
    """One run of two processes, each with mounts of its own; the faults one after the other."""
    outcome, workdir = Outcome(), place.root / "run"
    command = runs.train(
        place.small, workdir, *PLAIN, runs.SLOWLY, "checkpoint.every=5 steps", "checkpoint.keep=1",
        *runs.apart(),
    )  # fmt: skip
    private = ["unshare", "--map-root-user", "--mount", *command]
    logs = [place.root / "0.log", place.root / "1.log"]
    with (
        runs.running([*private, "--process=0"], logs[0]) as zero,
        runs.running([*private, "--process=1"], logs[1]) as one,
    ):
        faults = [(fault, victim) for fault in ONE_SIDED for victim in (0, 1)][: place.tries]
        for fault, victim in faults:
            with outcome.trying():
                _fails_for(fault, victim, [zero, one], logs, workdir)
        with outcome.afterwards():
            codes = zero.wait(runs.PATIENCE_S), one.wait(runs.PATIENCE_S)
            assert codes == (0, 0), f"exit codes {codes}"
            assert runs.committed(workdir) == [runs.STEPS] and not runs.unfinished(workdir)
    return outcome


def _fails_for(
    fault: Callable[[subprocess.Popen, Path, bool], None],
    victim: int,
    processes: list[subprocess.Popen],
    logs: list[Path],
    workdir: Path,
) -> None:
    damaged, full = processes[victim], runs.checkpoint(workdir, 0).parent
    other = 1 - victim
    last = lambda: runs.committed(workdir)[-1:] or [0]  # noqa: E731
    start, said = last(), [len(log.read_text()) if log.exists() else 0 for log in logs]
    runs.wait_until(lambda: last() > start, damaged)
    fault(damaged, full, True)
    kept = last()
    for i in (0, 1):
        runs.wait_until(lambda i=i: FAILED in logs[i].read_text()[said[i] :], processes[i])
    assert last() >= kept, "the checkpoint before is gone"
    fault(damaged, full, False)
    new = [log.read_text()[n:] for log, n in zip(logs, said, strict=True)]
    words = ONE_SIDED[fault]
    line = rf"^process {victim}: .*/full/\d+: .*could not be saved \(.*{words}"
    assert re.search(line, new[victim], re.M), f"process {victim} did not say {words!r}"
    line = rf"^process {other}: .*/full/\d+: .*could not be saved \(process {victim}\b"
    assert re.search(line, new[other], re.M), f"process {other} did not name process {victim}"
    broken = last()
    runs.wait_until(lambda: last() > broken, damaged)


# ---- a slow one ----------------------------------------------------------------------------------

SLOW_C = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int waited;

static void wait_for(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return;
  path[n] = 0;
  if (strstr(path, "/checkpoints/")) { waited++; usleep(50000); }
}
__attribute__((destructor)) static void tell(void) {
  if (waited) dprintf(2, "%d calls waited\\n", waited);
}
ssize_t write(int fd, const void *data, size_t n) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  wait_for(fd);
  return real(fd, data, n);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
  ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
  wait_for(fd);
  return real(fd, parts, n);
}
int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  wait_for(fd);
  return real(fd);
}
"""
"""All calls by which Orbax, tensorstore and jaxlm write and sync."""


def slow_store(place: Place) -> Outcome:
    """A library before libc, which makes writes and syncs of checkpoints' files wait."""
    outcome, workdir, log = Outcome(), place.root / "run", place.root / "run.log"
    source, library = place.root / "slow.c", place.root / "slow.so"
    source.write_text(SLOW_C)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    more = (*PLAIN, "checkpoint.every=40 steps")
    whole = place.undisturbed(place.small, *more)
    command = ["env", f"LD_PRELOAD={library}", *runs.train(place.small, workdir, *more)]
    with outcome.trying():
        with runs.running(command, log) as process:
            most = _steps_beside_a_save(process, workdir)
        output = log.read_text()
        assert process.returncode == 0, output[-300:]
        calls = max(map(int, re.findall(r"^(\d+) calls waited$", output, re.M)), default=0)
        assert calls >= 10, f"only {calls} calls were slow"
        plain_s, slow_s = (_save_s(run) for run in (whole, workdir))
        took = f"a save took {slow_s:.1f} s instead of {plain_s:.1f} s"
        assert slow_s >= plain_s + 0.5, f"{calls} calls were slow, and {took}"
        assert most >= 5, f"only {most} steps went by while a save was written"
        runs.assert_same(runs.state(workdir), runs.state(whole))
        outcome.notes.append(f"{calls} slow calls; {took}, up to {most} steps went by meanwhile")
    return outcome


def _steps_beside_a_save(process: subprocess.Popen, workdir: Path) -> int:
    """Waits for a run's end; the most steps that went by while one save was written."""
    most, began, end = 0, {}, time.monotonic() + runs.PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < end, f"it had not ended after {runs.PATIENCE_S} s"
        for path in runs.unfinished(workdir):
            step = workdirs.status(workdir)["step"]
            most = max(most, step - began.setdefault(path, step))
        time.sleep(0.005)
    return most


def _save_s(workdir: Path) -> float:
    """Median time from a save's first file to its marker."""
    times = [runs.save_times(workdir, step) for step in runs.committed(workdir)]
    return statistics.median(marked - begun for begun, marked in times)
