"""Work directories on real storage that is read-only, or full."""

import re
import shlex
import sys

import pytest

from tests.system import runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts are private on Linux alone")


def inside(*lines: str) -> list[str]:
    """Runs shell lines as somebody who may mount, and whose mounts nobody else sees."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines)]


def test_a_read_only_directory(tmp_path, config):
    workdir = tmp_path / "run"
    workdir.mkdir()
    command = inside(
        f"mount --bind {workdir} {workdir}",
        f"mount -o remount,bind,ro {workdir}",
        shlex.join(runs.train(config, workdir)),
    )
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 78, output
    assert (
        f"jaxlm train: --workdir={workdir}: cannot be written (Read-only file system); "
        "choose a directory that this user may write, on a disk with room"
    ) in output
    assert "compiling" not in output
    assert list(workdir.iterdir()) == []


@pytest.mark.system
def test_a_full_disk(tmp_path, config, whole):
    workdir = tmp_path / "run"
    workdir.mkdir()
    command = runs.train(config, workdir)
    kept = tmp_path / "kept"
    script = inside(
        f"mount -t tmpfs -o size=2m tmpfs {workdir}",
        shlex.join(command),
        "echo exit $?",
        f"mount -o remount,size=64m {workdir}",
        shlex.join(command),
        f"cp -r {workdir} {kept}",
    )
    code, output = runs.finish(script, tmp_path / "log")
    assert code == 0, output
    first, second = output.split("\nexit 78\n")
    last = int(re.search(r"^resuming at step (\d+)", second, re.M)[1])
    full = [
        re.escape(str(runs.checkpoint(workdir, step)))
        for step in range(0, runs.STEPS + 1, runs.SAVE_EVERY)
    ]
    assert re.search(
        f"^process 0: {full[last // runs.SAVE_EVERY + 1]}: the checkpoint could not be saved",
        first,
        re.M,
    )
    message = first.splitlines()[-1]
    assert re.match(f"jaxlm train: {full[-1]}: the checkpoint could not be saved", message)
    assert message.endswith(
        "The ones before it are whole: see that the disk has room and can be written"
    )
    assert "ERROR:" not in output  # of Orbax and asyncio, hundreds of lines
    runs.assert_same(runs.state(kept), runs.state(whole))
