"""The checks of all hosts of a run, after they have met and before anything is compiled.

Every process hands in facts, all judge the same ones, and so all end with the same words and exit
code: `EnvironmentProblem` names process and host, the value, the rule and the remedy. It is done
twice. First what needs no devices, since JAX's look for them is itself a meeting of all processes,
which hangs where they do not fit; then devices, data and memory. Of one process, the second alone.
"""

import contextlib
import hashlib
import math
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax

import jaxlm
from jaxlm import cluster, platforms, site, storage, terminal
from jaxlm.config import Config
from jaxlm.errors import RESTART, EnvironmentProblem, UserError, as_told, told
from jaxlm.schema import flat
from jaxlm.site import Workdir

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "grain",
    "array-record",
    "numpy",
    "tensorstore",
    "ml-collections",
    "libtpu",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
)
"""That decide what is computed, or how processes speak to each other."""

SEES_S = 15.0
"""How long a shared directory may take to show one host what another has written."""
CLOCKS_S = 10.0
"""How far clocks may be apart before it is said."""
NAMED, GROUPS, SHOWN = 5, 4, 80
"""What a message names at most: differences, values of one, characters of a value."""


class Host(NamedTuple):
    """What a process says of itself before JAX looks for devices."""

    host: str
    values: dict[str, str]
    """What must be the same everywhere, by its name."""
    workdir: tuple[str, int] | None
    """What is wrong with the work directory here, and the exit code for it."""
    clock: tuple[float, float]
    """The wall clock before this process came to a meeting of all, and after all had."""


class Machine(NamedTuple):
    """What it says once it has its devices and has opened its data."""

    host: str
    devices: str
    """Their number and kind; empty where JAX found none."""
    place: tuple[int, int]
    """The process's number among how many, as the devices' runtime counts."""
    problem: tuple[str, int] | None
    """What it would be refused for if it were alone, and the exit code."""
    data: dict[str, str]
    """The data's fingerprint."""
    memory: int | None
    """Free bytes of the host; None where the system does not tell."""
    saved: int
    """Bytes of a full checkpoint."""


# ---- before JAX looks for devices ----------------------------------------------------------------


def check_hosts(cfg: Config, directory: Workdir) -> None:
    """Code, packages, config, work directory and clocks; makes the work directory.

    Raises the same `UserError` on all processes. Clocks that are apart are only told, by process 0:
    no step, save or lock of a run goes by the wall clock, and whoever starts a run can seldom set
    it. Times in logs suffer, and from a quarter of an hour on requests to object stores.
    """
    me, count = cluster.place()
    if count == 1:
        site.check_writable(directory)
        return
    with contextlib.ExitStack() as stack:
        before_s = time.time()
        name = cluster.of_first(
            "the work directory", lambda: stack.enter_context(site.probe(directory))
        )
        clock = (before_s, time.time())
        wrong = None if me == 0 else _wrong_with(directory, name)
        mine = Host(socket.gethostname(), _values(cfg), wrong, clock)
        everyone = [Host(*found) for found in cluster.gather("preflight", mine)]
    problem = of_hosts(everyone)
    if problem is not None:
        raise problem
    if me == 0:
        for line in clocks(everyone):
            terminal.show(line, sys.stderr)


def of_hosts(everyone: Sequence[Host]) -> UserError | None:
    """What keeps these processes from being a run."""
    names = _names(everyone)
    different = _differences(names, [host.values for host in everyone])
    if different:
        return EnvironmentProblem(
            f"processes differ in {different}. Use one version of the code, of the packages and of "
            "the config on all hosts"
        )
    return _refusal(names, [host.workdir for host in everyone])


def clocks(everyone: Sequence[Host]) -> list[str]:
    """A line for each clock that is surely more than `CLOCKS_S` apart from that of process 0.

    A process came to the meeting before process 0 had met all, and process 0 before the process
    had: this bounds the difference from both sides, to within what the two have waited.
    """
    names, lines = _names(everyone), []
    came_s, met_s = everyone[0].clock
    for name, host in zip(names, everyone, strict=True):
        ahead_s, behind_s = host.clock[0] - met_s, came_s - host.clock[1]
        if max(ahead_s, behind_s) > CLOCKS_S:
            way = "ahead of" if ahead_s > behind_s else "behind"
            lines.append(
                f"the clock of {name} is {max(ahead_s, behind_s):.0f} s or more {way} that of "
                f"{names[0]}: times in logs do not compare, and object stores refuse requests of "
                "a clock that is minutes off; have the hosts keep time (NTP)"
            )
    return lines


def _values(cfg: Config) -> dict[str, str]:
    return {
        "the code of jaxlm": code(Path(jaxlm.__file__).parent),
        "python": platform.python_version(),
        **{name: version for name in PACKAGES if (version := _version(name)) is not None},
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "none"),
        **{name: _short(repr(value)) for name, value in flat(cfg)},
    }


def code(package: Path) -> str:
    """12 hex digits that stand for the Python files of a package."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        data = path.read_bytes()
        found.update(f"{path.relative_to(package)} {len(data)}\n".encode() + data)
    return found.hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _wrong_with(directory: Workdir, name: str) -> tuple[str, int] | None:
    """What is wrong with the work directory, into which process 0 has just written `name`."""
    try:
        if site.sees(directory, name, SEES_S):
            site.check_writable(directory)
            return None
    except UserError as e:
        return told(e)
    where = directory.absolute() if isinstance(directory, Path) else directory
    return (
        f"--workdir={where}: is not the directory of process 0, whose files have not come to be "
        f"seen in it for {SEES_S:.0f} s. A run has one, that all hosts mount or in an object store",
        EnvironmentProblem.exit_code,
    )


# ---- with devices and data -----------------------------------------------------------------------


def check_machines[T](opens: Callable[[], tuple[T, Mapping[str, Any], int]]) -> tuple[T, int]:
    """Devices, data and memory: what `opens` opens, and the bytes of a full checkpoint.

    `opens` gives these two, and between them the data's fingerprint. What it raises on one process
    is raised by all; so is a `UserError` for what they say together.
    """
    devices, found, problem, fingerprint, saved = "", None, None, {}, 0
    try:
        devices = _devices()
        found, fingerprint, saved = opens()
    except Exception as e:
        problem = e if isinstance(e, UserError) else storage.problem(e)
        if problem is None:
            raise
    mine = Machine(
        socket.gethostname(),
        devices,
        (jax.process_index(), jax.process_count()) if devices else cluster.place(),
        problem and told(problem),
        {f"the data, {name}": _short(str(value)) for name, value in fingerprint.items()},
        free_memory(),
        saved,
    )
    refused = of_machines([Machine(*m) for m in cluster.gather("devices and data", mine)])
    if refused is not None:
        raise (problem if problem is not None and str(problem) == str(refused) else refused)
    assert found is not None
    return found, saved


def of_machines(everyone: Sequence[Machine]) -> UserError | None:
    """What keeps these processes from being a run."""
    names = _names(everyone)
    for i, (name, machine) in enumerate(zip(names, everyone, strict=True)):
        index, count = machine.place
        if (index, count) != (i, len(everyone)):
            return EnvironmentProblem(
                f"{name}: is one of --processes={len(everyone)}, and its devices' runtime counts "
                f"it as process {index} of {count}. Start one process for each that it counts, "
                "each with that number: of a TPU slice, --process is the worker's"
            )
    with_devices = [i for i, machine in enumerate(everyone) if machine.devices]
    different = _differences(
        [names[i] for i in with_devices], [{"devices": everyone[i].devices} for i in with_devices]
    )
    if different:
        return EnvironmentProblem(
            f"processes differ in {different}. A run needs as many of one kind on each: mend the "
            "host that has others, or leave it out"
        )
    problem = _refusal(names, [machine.problem for machine in everyone])
    if problem is not None:
        return problem
    different = _differences(names, [machine.data for machine in everyone])
    if different:
        return EnvironmentProblem(
            f"processes differ in {different}. Give all hosts one corpus and one skips.json"
        )
    return _too_little_memory(names, everyone)


def check_room(directory: Workdir, saved: int) -> None:
    """`EnvironmentProblem` if the disk of a work directory has no room for one checkpoint.

    Call it when unfinished saves are deleted; in a store there is always room.
    """
    if not isinstance(directory, Path):
        return
    total, _, free = shutil.disk_usage(directory)
    if total and free < saved:  # some network file systems do not say how large they are
        raise EnvironmentProblem(
            f"--workdir={directory}: its disk has {_gb(free)} free, and one full checkpoint takes "
            f"{_gb(saved)}; make room, or choose another disk"
        )


def _devices() -> str:
    try:
        local = jax.local_devices()
    except RuntimeError as e:
        raise EnvironmentProblem(
            f"JAX finds no devices ({str(e).partition(chr(10))[0]}); see that driver and plugin "
            "work here, or name what is there in JAX_PLATFORMS"
        ) from e
    gpu = platforms.gpu()
    if local[0].platform == "cpu" and gpu is not None and "JAX_PLATFORMS" not in os.environ:
        raise EnvironmentProblem(
            f"JAX uses the CPU, though this machine has GPUs ({gpu.kinds[0]}): its CUDA plugin is "
            "missing or does not work. Mend it, or set JAX_PLATFORMS=cpu"
        )
    kinds = [device.device_kind for device in local]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def _too_little_memory(names: list[str], everyone: Sequence[Machine]) -> UserError | None:
    """A save first copies all of the state to the hosts, each process its share."""
    share = math.ceil(everyone[0].saved / len(everyone))
    for name, machine in zip(names, everyone, strict=True):
        beside = sum(other.host == machine.host for other in everyone)
        if machine.memory is not None and machine.memory < beside * share:
            of = f", {beside} processes with {_gb(share)} each" if beside > 1 else ""
            return EnvironmentProblem(
                f"{name}: {_gb(machine.memory)} of memory are free, and the copy of the state that "
                f"a save makes takes {_gb(beside * share)} there{of}. Free some, use more hosts, "
                "or raise the limit that the scheduler sets"
            )
    return None


def free_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process might still get; None where the system does not tell.

    Of a control group with a limit all of that: how much of its use would be given back for want
    of memory is not known.
    """
    try:
        lines = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
        found = int(lines["MemAvailable"].removesuffix("kB")) * 1024
    except (OSError, ValueError, KeyError):
        return None
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                inside = cgroup / line.removeprefix("0::/")
                for group in (inside, *inside.parents):
                    with contextlib.suppress(OSError, ValueError):  # "max"
                        found = min(found, int((group / "memory.max").read_text()))
    return found


# ---- words ---------------------------------------------------------------------------------------


def _names(everyone: Sequence[Host] | Sequence[Machine]) -> list[str]:
    return [f"process {i} ({found.host})" for i, found in enumerate(everyone)]


def _differences(names: list[str], values: list[dict[str, str]]) -> str:
    """What differs, by its name, with who has what; empty if nothing does."""
    found = []
    for key in dict.fromkeys(key for mine in values for key in mine):
        having: dict[str, list[str]] = {}
        for name, mine in zip(names, values, strict=True):
            having.setdefault(mine.get(key, "none"), []).append(name)
        if len(having) > 1:
            said = [f"{value} on {_some(who)}" for value, who in having.items()]
            found.append(f"{key}: {', '.join([*said[:GROUPS], *['...'] * (len(said) > GROUPS)])}")
    more = len(found) - NAMED
    return "; ".join(found[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def _some(names: list[str]) -> str:
    more = len(names) - 1
    return f"{names[0]} and {more} more" if more else names[0]


def _refusal(names: list[str], problems: Sequence[tuple[str, int] | None]) -> UserError | None:
    """The first problem that a process has; of some alone, it is one of their machines."""
    having = [i for i, problem in enumerate(problems) if problem is not None]
    if not having:
        return None
    text, code = problems[having[0]] or ("", 0)
    if len(having) < len(names):
        who = _some([names[i] for i in having])
        text = f"{who} alone, of {len(names)} processes: {text}"
        code = code if code == RESTART else EnvironmentProblem.exit_code
    return as_told(text, code)


def _short(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
