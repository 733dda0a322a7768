"""Work directories on real storage that is read-only, or full."""

import re
import shlex
import sys

import pytest

from bench import runs
from bench.faults.place import Place
from bench.faults.storage import inside, read_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts are private on Linux alone")

IMPATIENT = """
import sys
from jaxlm import cli, saving

saving.LAST_WAITS_S = (0.1,) * len(saving.LAST_WAITS_S)
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_read_only_directory(tmp_path):
    outcome = read_only(Place(tmp_path / "place", seed=0, tries=1))
    assert outcome.survived == 1, outcome.notes


@pytest.mark.system
def test_a_full_disk(tmp_path, config, whole):
    """At its end it tries four times; without the minute between the tries here."""
    workdir = tmp_path / "run"
    workdir.mkdir()
    command = runs.train(config, workdir)
    impatient = [sys.executable, "-c", IMPATIENT, *command[3:]]
    kept = tmp_path / "kept"
    script = inside(
        f"mount -t tmpfs -o size=2m tmpfs {workdir}",
        shlex.join(impatient),
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
    last_save = rf"^process 0: {full[-1]}: the checkpoint could not be saved .* tried again$"
    assert len(re.findall(last_save, first, re.M)) == 4
    message = first.splitlines()[-1]
    assert re.match(f"jaxlm train: {full[-1]}: the checkpoint could not be saved", message)
    assert message.endswith(
        "The ones before it are whole: see that there is room, and that it can be written"
    )
    assert "ERROR:" not in output  # of Orbax and asyncio, hundreds of lines
    runs.assert_same(runs.state(kept), runs.state(whole))
