"""What all hosts must have in common: of made-up facts, who is refused, and in which words."""

import shutil
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxlm
from jaxlm import platforms, preflight
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.preflight import Host, Machine

GB = 10**9
VALUES = {"the code of jaxlm": "c0de", "jaxlib": "0.9", "config.optim.lr": "0.001"}
DATA = {"the data, manifest": "abc", "the data, seed": "0"}


def hosts(*changed: dict[str, Any]) -> list[Host]:
    """Processes on hosts a, b, c ..., with these fields of each changed."""
    return [
        Host("abcdefgh"[i], VALUES, None, (100.0, 101.0))._replace(**fields)
        for i, fields in enumerate(changed)
    ]


def machines(*changed: dict[str, Any]) -> list[Machine]:
    count = len(changed)
    return [
        Machine("abcdefgh"[i], "8 x h100", (i, count), None, DATA, 64 * GB, 100 * GB)._replace(
            **fields
        )
        for i, fields in enumerate(changed)
    ]


def said(problem: UserError | None, code: int = 78) -> str:
    assert problem is not None and problem.exit_code == code
    return str(problem)


# ---- before JAX looks for devices ----------------------------------------------------------------


def test_hosts_that_fit_are_a_run():
    assert preflight.of_hosts(hosts({}, {}, {})) is None
    assert preflight.clocks(hosts({}, {}, {})) == []


@pytest.mark.parametrize("name", VALUES)
def test_what_differs_is_named_with_who_has_what(name):
    other = {"values": VALUES | {name: "else"}}
    assert said(preflight.of_hosts(hosts({}, {}, other, other))) == (
        f"processes differ in {name}: {VALUES[name]} on process 0 (a) and 1 more, else on process "
        "2 (c) and 1 more. Use one version of the code, of the packages and of the config on all "
        "hosts"
    )


def test_what_one_has_and_another_has_not_differs_too():
    for without in (0, 1):
        changed = [{}, {}]
        changed[without] = {"values": {k: v for k, v in VALUES.items() if k != "jaxlib"}}
        message = said(preflight.of_hosts(hosts(*changed)))
        assert "differ in jaxlib: " in message and f"none on process {without} " in message


def test_a_message_does_not_grow_with_the_run():
    values = [{f"config.f{j}": f"{i}" for j in range(9)} for i in range(8)]
    message = said(preflight.of_hosts(hosts(*({"values": v} for v in values))))
    assert "config.f0: 0 on process 0 (a), 1 on process 1 (b), 2 on " in message
    assert "3 on process 3 (d), ...; config.f1: " in message and "4 on " not in message
    assert "; and 4 more. Use" in message and "config.f5" not in message


def test_a_work_directory_that_one_does_not_share():
    wrong = ("--workdir=/runs/x: is not the directory of process 0", 78)
    assert said(preflight.of_hosts(hosts({}, {}, {"workdir": wrong}))) == (
        "process 2 (c) alone, of 3 processes: --workdir=/runs/x: is not the directory of process 0"
    )
    both = preflight.of_hosts(hosts({}, {"workdir": wrong}, {"workdir": wrong}))
    assert said(both).startswith("process 1 (b) and 1 more alone, of 3 processes: --workdir=")


def test_a_store_that_does_not_answer_one_host_is_asked_again():
    away = ("gs://b/x: the store failed 4 times", 75)
    assert "process 1 (b)" in said(preflight.of_hosts(hosts({}, {"workdir": away})), code=75)


def test_other_code_comes_before_what_may_follow_from_it():
    other = {"values": VALUES | {"jaxlib": "0.10"}, "workdir": ("--workdir=...", 78)}
    assert said(preflight.of_hosts(hosts({}, other))).startswith("processes differ in jaxlib")


@pytest.mark.parametrize(
    ("zero", "other", "line"),
    [
        ((100.0, 101.0), (160.0, 161.0), "is 59 s or more ahead of"),
        ((100.0, 101.0), (40.0, 41.0), "is 59 s or more behind"),
        ((100.0, 101.0), (109.0, 110.0), None),
        ((100.0, 160.0), (160.0, 161.0), None),  # process 0 may have waited for so long
        ((100.0, 101.0), (40.0, 99.0), None),  # and so may the other
        ((100.0, 160.0), (240.0, 241.0), "is 80 s or more ahead of"),
    ],
)
def test_clocks_that_are_surely_apart_are_told(zero, other, line):
    lines = preflight.clocks(hosts({"clock": zero}, {"clock": other}))
    if line is None:
        assert lines == []
    else:
        (found,) = lines
        assert found.startswith(f"the clock of process 1 (b) {line} that of process 0 (a): ")


def test_the_code_is_that_of_every_file_by_its_name(tmp_path):
    package = Path(jaxlm.__file__).parent
    one, found = tmp_path / "jaxlm", preflight.code(package)
    shutil.copytree(package, one)
    assert preflight.code(one) == found
    (one / "notes.txt").touch()
    assert preflight.code(one) == found
    (one / "data" / "order.py").rename(one / "data" / "other.py")
    renamed = preflight.code(one)
    (one / "data" / "other.py").write_text("")
    assert len({found, renamed, preflight.code(one)}) == 3


# ---- with devices and data -----------------------------------------------------------------------


def test_machines_that_fit_are_a_run():
    assert preflight.of_machines(machines({}, {}, {})) is None
    unknown = {"memory": None}  # the system does not tell
    assert preflight.of_machines(machines(unknown, unknown)) is None


@pytest.mark.parametrize("devices", ["7 x h100", "8 x a100", "8 x h100, 1 x a100"])
def test_other_devices(devices):
    assert said(preflight.of_machines(machines({}, {}, {"devices": devices}))) == (
        f"processes differ in devices: 8 x h100 on process 0 (a) and 1 more, {devices} on process "
        "2 (c). A run needs as many of one kind on each: mend the host that has others, or leave "
        "it out"
    )


def test_a_host_without_devices_is_named_with_its_reason():
    none = {"devices": "", "problem": ("JAX finds no devices (no driver)", 78)}
    message = said(preflight.of_machines(machines({}, none)))
    assert message == "process 1 (b) alone, of 2 processes: JAX finds no devices (no driver)"


@pytest.mark.parametrize(("place", "count"), [((0, 4), 1), ((1, 2), 2)])
def test_processes_that_the_runtime_counts_otherwise(place, count):
    """As of a TPU slice, whose workers were started without --processes, or out of order."""
    changed = [{"place": place}, {}][:count]
    message = said(preflight.of_machines(machines(*changed)))
    assert message.startswith(
        f"process 0 (a): is one of --processes={count}, and its devices' runtime counts it as "
        f"process {place[0]} of {place[1]}. Start one process for each"
    )


def test_data_that_one_host_has_not():
    missing = ("/data/manifest.json: no such manifest; build the corpus first", 2)
    alone = machines({}, {"problem": missing, "data": {}, "saved": 0})
    assert said(preflight.of_machines(alone)) == (
        f"process 1 (b) alone, of 2 processes: {missing[0]}"
    )
    everywhere = machines(*2 * [{"problem": missing, "data": {}, "saved": 0}])
    assert said(preflight.of_machines(everywhere), code=2) == missing[0]


def test_other_data():
    other = {"data": DATA | {"the data, manifest": "def"}}
    assert said(preflight.of_machines(machines({}, other))) == (
        "processes differ in the data, manifest: abc on process 0 (a), def on process 1 (b). Give "
        "all hosts one corpus and one skips.json"
    )


def test_no_memory_for_the_copy_that_a_save_makes():
    """Half of the state each: 50 GB."""
    assert preflight.of_machines(machines({}, {"memory": 50 * GB})) is None
    assert said(preflight.of_machines(machines({}, {"memory": 49 * GB}))).startswith(
        "process 1 (b): 49 GB of memory are free, and the copy of the state that a save makes "
        "takes 50 GB there. Free some"
    )


def test_processes_of_one_host_share_its_memory():
    one = machines(*4 * [{"host": "a", "memory": 99 * GB}])
    assert "takes 100 GB there, 4 processes with 25 GB each." in said(preflight.of_machines(one))
    assert preflight.of_machines(machines(*4 * [{"memory": 26 * GB}])) is None


def test_a_process_alone_raises_what_it_has_met():
    class Refused(UserError):
        pass

    def opens() -> Any:
        raise Refused("no such corpus")

    with pytest.raises(Refused, match="no such corpus"):
        preflight.check_machines(opens)
    assert preflight.check_machines(lambda: ("opened", {"seed": 0}, 7)) == ("opened", 7)


def test_a_state_that_no_memory_can_hold_is_refused_at_the_start():
    with pytest.raises(EnvironmentProblem, match=r"takes 1e\+06 GB there\. Free some"):
        preflight.check_machines(lambda: ("opened", {}, 10**15))


def test_gpus_that_jax_does_not_find_are_missed(tmp_path, monkeypatch):
    """It would go on with the CPU."""
    information = tmp_path / "driver/nvidia/gpus/0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model:\t NVIDIA H200\n")
    chip = platforms.gpu(tmp_path)
    monkeypatch.setattr(platforms, "gpu", lambda: chip)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # as the user says
    assert preflight._devices() == f"{jax.local_device_count()} x cpu"
    monkeypatch.delenv("JAX_PLATFORMS")
    with pytest.raises(EnvironmentProblem, match=r"uses the CPU, .* has GPUs \(NVIDIA H200\)"):
        preflight._devices()


def test_no_room_for_a_checkpoint(tmp_path, monkeypatch):
    preflight.check_room(tmp_path, 10**6)
    with pytest.raises(EnvironmentProblem, match=r"free, and one full checkpoint takes 1e\+09 GB"):
        preflight.check_room(tmp_path, 10**18)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (0, 0, 0))  # as some network disks say
    preflight.check_room(tmp_path, 10**18)


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        ("0::/", {}, 48_000_000 * 1024),
        ("0::/", {"": "max"}, 48_000_000 * 1024),
        ("0::/", {"": "8000000000"}, 8 * GB),
        ("0::/slurm/job_7/step_0", {"slurm/job_7": "8000000000", "slurm": "max"}, 8 * GB),
        ("1:memory:/old", {"": "8000000000"}, 48_000_000 * 1024),
    ],
)
def test_free_memory_is_what_machine_and_control_group_leave(tmp_path, group, limits, expected):
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(
        "MemTotal:       65000000 kB\nMemFree:         1000000 kB\nMemAvailable:   48000000 kB\n"
        "HugePages_Total:       0\n"
    )
    (proc / "self" / "cgroup").write_text(f"{group}\n")
    for name, limit in limits.items():
        (cgroup / name).mkdir(parents=True, exist_ok=True)
        (cgroup / name / "memory.max").write_text(f"{limit}\n")
    assert preflight.free_memory(proc, cgroup) == expected


def test_a_system_that_does_not_tell_its_memory(tmp_path):
    assert preflight.free_memory(tmp_path, tmp_path) is None
