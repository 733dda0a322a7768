"""Runs whose work directory lies in an object store."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import runs
from bench.faults import stores as campaign
from bench.faults.place import Place
from bench.stores import SECRET, Fault, Proxy, put
from jaxlm import storage
from jaxlm import workdir as workdirs

pytestmark = pytest.mark.system

END = 30
QUICK = (
    f"train.end={END} steps",
    "optim.warmup=0 steps",
    "checkpoint.every=10 steps",
    "checkpoint.snapshot_every=10 steps",
    "evaluate.every=None",
)


@pytest.fixture(scope="module")
def short(config, tmp_path_factory) -> Path:
    """An undisturbed run on a disk."""
    workdir = tmp_path_factory.mktemp("short") / "run"
    code, output = runs.finish(runs.train(config, workdir, *QUICK), workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


def jaxlm(command: str, url: str, *rest: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "jaxlm", command, f"--workdir={url}", *rest]
    where = runs.environment(devices=1)
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, env=where)


def test_a_failing_store_under_processes_that_are_killed(tmp_path):
    outcome = campaign.failing(Place(tmp_path / "row", seed=0, tries=12))
    assert (outcome.tried, outcome.lost) == (12, 0), outcome.notes


def test_a_run_and_all_that_looks_at_it(store: Proxy, config, short, tmp_path):
    url = store.url("a/run")
    began = tmp_path / "began"
    first = runs.train(config, url, *QUICK, runs.SLOWLY)
    with runs.running(first, began) as process:
        runs.wait_until(runs.says(began, "step     12/"), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(runs.PATIENCE_S) == 75, began.read_text()
    code, output = runs.finish(runs.train(config, url, *QUICK), tmp_path / "log")
    assert code == 0 and "resuming at step" in output, output
    campaign.copy(url, tmp_path / "copy")
    runs.assert_same(runs.state(tmp_path / "copy", END), runs.state(short, END))
    # A start does not report its first step: it takes no time from the one before.
    first, second = workdirs.history(tmp_path / "copy")
    expected = runs.losses(short)
    del expected[second.step + 1]
    assert first.step == 0 and runs.losses(tmp_path / "copy") == expected
    assert runs.committed(tmp_path / "copy")[-1] == END
    written = b"".join(p.read_bytes() for p in (tmp_path / "copy").rglob("*") if p.is_file())
    assert SECRET.encode() not in written and SECRET not in output
    data = json.loads(jaxlm("status", url, "--json").stdout)
    assert (data["state"], data["step"], data["full"]["step"]) == ("done", END, END)
    assert data["snapshot"]["step"] in (20, END) and data["pid"] is None
    for command, rest, words in (
        ("evaluate", (), f"step {END} of {url}"),
        ("sample", ("--max-tokens=4",), ""),
        ("train", (f"--config={config}", "--dry-run"), "attached"),
    ):
        done = jaxlm(command, url, *rest)
        assert done.returncode == 0 and words in done.stdout, done
    assert f"evaluation-{END}.json" in storage.entries(url)[0]
    for number, origin in enumerate((url, f"{url}/checkpoints/snapshots/20")):
        fresh = (*QUICK, "train.end=2 steps", f"--init-from={origin}")
        code, output = runs.finish(
            runs.train(config, tmp_path / f"fresh-{number}", *fresh), tmp_path / "f"
        )
        assert code == 0 and f"parameters from {url}/checkpoints/" in output, output


IMPATIENT = """
import sys
from jaxlm import cli, lease
lease.REFUSE_S = 1.0
sys.exit(cli.main(sys.argv[1:]))
"""
"""The lock's holder is known to live once it is seen to write to it."""


def test_one_run_at_a_time(store: Proxy, config, tmp_path):
    url, log = store.url("one/run"), tmp_path / "log"
    long = (*QUICK, "data.source=synthetic", "train.end=40000 steps", "checkpoint.keep=2")
    with runs.running(runs.train(config, url, *long), log) as process:
        runs.wait_until(runs.says(log, "step     12/"), process)
        second = [sys.executable, "-c", IMPATIENT, *runs.train(config, url, *long)[3:]]
        code, output = runs.finish(second, tmp_path / "second")
        assert code == 78 and f"{url}/lock: pid {process.pid} on " in output, output
        status = jaxlm("status", url)
        assert status.stdout.startswith("training") and str(process.pid) in status.stdout, status
        process.kill()
        process.wait()
    assert jaxlm("status", url).stdout.startswith("dead")
    third = tmp_path / "third"
    with runs.running(runs.train(config, url, *long), third) as process:
        runs.wait_until(runs.says(third, "resuming at step"), process)
    # It was on this machine, and is known to be gone.
    assert "waiting to see whether it lives on" not in third.read_text()


def test_damage_is_refused_and_fallback_goes_on_from_the_one_before(
    store: Proxy, config, short, tmp_path
):
    url = store.url("damaged/run")
    for path in sorted(short.rglob("*")):
        if path.is_file() and path.name != "lock":
            put(store, f"damaged/run/{path.relative_to(short)}", path.read_bytes())
    name = next(
        n for n in sorted(storage.sizes(f"{url}/checkpoints/full/{END}", [""])) if "/d/" in n
    )
    at = f"damaged/run/checkpoints/full/{END}/{name}"
    data = (short / "checkpoints" / "full" / str(END) / name).read_bytes()
    put(store, at, data[:-1] + bytes([data[-1] ^ 4]))
    longer = (*QUICK, "train.end=40 steps")
    before = storage.sizes(f"{url}/checkpoints", [""])
    code, output = runs.finish(runs.train(config, url, *longer), tmp_path / "refused")
    assert code == 2 and f"{url}/checkpoints/full/{END}: the checkpoint is damaged" in output
    assert name in output and storage.sizes(f"{url}/checkpoints", [""]) == before
    code, output = runs.finish(runs.train(config, url, *QUICK, "--fallback"), tmp_path / "fallback")
    assert code == 0 and "resuming at step 20" in output, output
    campaign.copy(url, tmp_path / "copy")
    runs.assert_same(runs.state(tmp_path / "copy", END), runs.state(short, END))
    (moved,) = (tmp_path / "copy" / "abandoned").glob(f"damaged-*/full/{END}")
    assert (moved / name).read_bytes() != data
    # A checkpoint that has lost its marker is moved, and missed.
    storage.delete(f"{url}/checkpoints/full/{END}/{workdirs.MARKER}")
    code, output = runs.finish(runs.train(config, url, *longer), tmp_path / "missing")
    assert code == 2, output
    assert f"full/{END}: has lost its marker; moved to {url}/abandoned/unmarked-" in output
    assert f"has saved step {END}, and now it is not there" in re.sub(r"\s+", " ", output)


def test_going_back_in_a_store(store: Proxy, tmp_path):
    from bench.faults.numbers import SPIKE, SPIKY, spiky

    url = store.url("spiky/run")
    command = runs.train(spiky(tmp_path), url, *SPIKY, "checkpoint.every=10 steps")
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 0 and f"step {SPIKE} is a spike: loss " in output, output
    campaign.copy(url, tmp_path / "copy")
    (event,) = {e["event"] for e in workdirs.lines(tmp_path / "copy" / "events.jsonl")}
    assert (tmp_path / "copy" / "abandoned" / event / "full" / "70").is_dir()
    assert (tmp_path / "copy" / "events" / event / "batch.npy").is_file()
    done = jaxlm("replay", url, event)
    assert done.returncode == 0 and "loss" in done.stdout, done
    assert "replay.json" in storage.entries(f"{url}/events/{event}")[0]


def test_a_bucket_without_rights(store: Proxy, config, tmp_path):
    """The launcher does not try again what credentials forbid, and says it first."""
    methods = ("PUT", "POST", "DELETE")
    store.faults.extend(Fault("403", times=10_000, method=method) for method in methods)
    command = runs.launch(config, url := store.url("forbidden/run"), f"--logs={tmp_path}/logs")
    start = time.monotonic()
    code, output = runs.finish(command, tmp_path / "log")
    assert code == 78 and time.monotonic() - start < 30, output
    said = re.findall(r"^launch: .*", output, re.M)
    assert re.match(r"launch: process [01] ended with exit code 78 \(wrong environment\)", said[0])
    assert f"{url}" in said[1] and "the store refuses" in said[1], output
    assert "starting again" not in output
    store.faults.clear()
    assert storage.entries(url) == ([], [])  # nothing half-started
