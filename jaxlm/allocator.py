"""The allocator of a process that computes on the CPU: glibc's, set for arrays.

XLA:CPU takes every array of a step from malloc and gives it back. By default glibc maps a large one
anew each time, and the kernel clears its pages of 4 kB one by one; with these settings the memory
stays, in huge pages. glibc reads them when a process starts, so the command becomes itself again,
once, with the same process number. Standard library only; called before JAX is imported.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence

from jaxlm import platforms
from jaxlm.platforms import Variable

TUNABLES: dict[str, Variable] = {
    "glibc.malloc.hugetlb": Variable(
        "1", "Transparent huge pages for the heap: without it 1.30 times instead of 1.34."
    ),
    "glibc.malloc.arena_max": Variable(
        "1", "One heap, so that what a thread gives back any other takes: without it 1.17."
    ),
    "glibc.malloc.mmap_max": Variable(
        "0", "Large arrays come from the heap, too, and are not mapped anew: without it 1.14."
    ),
    "glibc.malloc.trim_threshold": Variable(
        "20000000000",
        "The heap's free end, up to 20 GB, is not given back and taken anew: without it 1.18.",
    ),
    "glibc.malloc.tcache_count": Variable(
        "0",
        "Threads keep no small blocks: one cut off an array to align it would be kept, and the "
        "room left too small for the next of that size.",
    ),
}
"""Name in GLIBC_TUNABLES -> setting. Figures: how many times as fast as plain a step of the demo's
model is; `python -m bench.malloc --parts`, docs/speed.md. Of memory they took 1.0 to 1.3
times there, and 1.3 to 2.7 times with 56M parameters: runs differ."""

COMMANDS = ("train", "evaluate", "sample", "replay", "demo")
"""Those that compute."""
FLAG = "--plain-malloc"
"""Of a command: leaves the allocator as it is."""
VARIABLE, BEFORE = "GLIBC_TUNABLES", "JAXLM_TUNABLES_BEFORE"
"""What glibc reads, and, in the next life alone, what it was in this one (JSON)."""

LINE = (
    "memory: glibc keeps it, in huge pages (faster steps, up to 2.7 times the memory); "
    f"{FLAG} leaves it as it is"
)
"""What a run says of it."""

in_force = False
"""Whether this process has the settings."""


def settle(argv: Sequence[str]) -> None:
    """Starts this process again with the settings, if the command is one that they are for.

    Returns where they are not, or are in force already. Processes that it starts are without them.
    """
    global in_force
    before = os.environ.pop(BEFORE, None)
    if before is not None:
        in_force = True
        del os.environ[VARIABLE]
        old = json.loads(before)
        if old is not None:
            os.environ[VARIABLE] = old
        return
    wanted = tunables(os.environ) if applies(argv) else ""
    if not wanted:
        return
    next_life = {**environment(), BEFORE: json.dumps(os.environ.get(VARIABLE))}
    with contextlib.suppress(OSError):  # an environment at its limit: it runs as it is
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], next_life)


def applies(argv: Sequence[str]) -> bool:
    """Whether a command line computes, on the CPU, with glibc's malloc, and asks for no other."""
    computes = bool(argv) and argv[0] in COMMANDS
    if not computes or {FLAG, "-h", "--help"} & set(argv) or sys.platform != "linux":
        return False
    glibc = "CS_GNU_LIBC_VERSION" in os.confstr_names and os.confstr("CS_GNU_LIBC_VERSION")
    return bool(glibc) and "malloc" not in os.environ.get("LD_PRELOAD", "") and platforms.is_cpu()


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment with the settings: of this process, or as given."""
    values = filter(None, (given.get(VARIABLE), tunables(given)))
    return {**given, VARIABLE: ":".join(values)}


def tunables(environment: Mapping[str, str]) -> str:
    """Settings to add to `VARIABLE`; what the user has set there, or by its old name, stands."""
    given = {entry.partition("=")[0] for entry in environment.get(VARIABLE, "").split(":")}
    old_names = {name.rstrip("_").lower() for name in environment if name.startswith("MALLOC_")}
    return ":".join(
        f"{name}={variable.value}"
        for name, variable in TUNABLES.items()
        if name not in given and name.removeprefix("glibc.").replace(".", "_") not in old_names
    )
