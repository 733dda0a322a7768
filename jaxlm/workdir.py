"""The small files of a run beside its checkpoints: who wrote what, and how to read it back.

config.json   the resolved configuration, of the newest start
history.jsonl one line a start: from which step and position, with which batch and processes
skips.json    rows to jump over, if there are any (`jaxlm.data.skips`)
status.json   where the run is; launchers watch `position`
lock          held by the run's process 0 (`jaxlm.lease` in an object store)
metrics.jsonl one line an interval or evaluation
ledger.jsonl  where the time of process 0 goes (`jaxlm.ledger`)
events.jsonl  one line for each step that stood out
replicas.json what several devices hold, and at which step it was last found the same
events/       what is kept of each (`jaxlm.evidence`)
"""

import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from jaxlm import records, storage
from jaxlm.errors import EnvironmentProblem, UserError
from jaxlm.mirror import Mirror
from jaxlm.site import Workdir

METRICS, EVENTS, REPLICAS = "metrics.jsonl", "events.jsonl", "replicas.json"
MARKER = "commit_success.txt"
"""In a checkpoint or snapshot that is whole; Orbax writes it last."""


NEEDED = ("config.json", "history.jsonl", "skips.json", "status.json", METRICS, EVENTS)
"""Files that a start goes on with."""


def step_of(name: str) -> int | None:
    """The step of a checkpoint by the name of its directory; None if that is of no checkpoint."""
    return int(name) if name.isdecimal() and name == str(int(name)) else None


class Place(NamedTuple):
    """`status.json`: where a run is."""

    state: str
    step: int
    position: int
    end: int
    saved: int | None = None
    """Step of the newest checkpoint that the run knew of."""
    time: str = ""


class Copies(NamedTuple):
    """What is known of a run in `replicas.json`."""

    comparable_bytes: int = 0
    """Of the state, what several devices hold."""
    all_bytes: int = 0
    agreed_at_step: int | None = None
    verified_at_step: int | None = None
    """Of the last step that was done twice and came out the same."""


class Start(NamedTuple):
    """A line of `history.jsonl`: steps from `step` on, until a later line says otherwise."""

    step: int
    position: int
    batch_size: int
    processes: int
    devices: int
    mesh: list[int]
    data: str
    """Digest of the data's fingerprint."""
    skips: list[list[int]]
    """Windows [start, stop) of rows that it jumps over."""
    changed: list[list[Any]]
    """[field, old, new] of what the config changed since the start before."""
    time: str
    init_from: str | None = None
    """Of a start at step 0: the checkpoint or snapshot that its parameters are from, if they were
    not drawn."""


def write_json(path: Path, data: Any) -> None:
    """Writes whole or not at all, as `write_text`."""
    write_text(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes whole or not at all; when it returns, a power failure leaves the new text."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_object(path: Path) -> dict[str, Any] | None:
    """What a JSON file says; None if it is not there, or says nothing that is an object."""
    try:
        found = records.parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def replicas(workdir: Workdir) -> dict[str, Any] | None:
    """`Copies` and more, as a run has last written it; None where it has not."""
    found = read_object(workdir / REPLICAS)
    return found if found is not None and records.of(Copies, found) is not None else None


def append_line(path: Path, data: Any) -> None:
    """Adds a line of JSON to a file."""
    with open_lines(path) as f:
        f.write(json.dumps(data, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """Plain data with numbers that JSON does not know, as NaN, in words."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def append_start(workdir: Workdir, start: Start) -> None:
    """Adds a line to the history, and so that it outlives the machine's power."""
    with open_lines(workdir / "history.jsonl") as f:
        f.write(json.dumps(start._asdict(), ensure_ascii=False) + "\n")
        f.flush()
        os.fsync(f.fileno())


def open_lines(path: Path) -> TextIO:
    """Opens for appending; a last line torn by a kill is ended first."""
    file = path.open("a+", encoding="utf-8")
    if file.tell() > 0:
        with path.open("rb") as f:
            f.seek(-1, os.SEEK_END)
            if f.read() != b"\n":
                file.write("\n")
    return file


def history(workdir: Workdir) -> list[Start]:
    """All starts of a run, oldest first."""
    path, found = workdir / "history.jsonl", []
    for line in lines(path):
        start = records.of(Start, line)
        if start is None:
            raise UserError(
                f"{path}: {json.dumps(line)[:300]} is no start of a run; restore the line: what "
                "steps have read is told by it"
            )
        found.append(start)
    return found


def kept_events(workdir: Workdir) -> list[str]:
    """Those that evidence is kept of."""
    if isinstance(workdir, Mirror):
        return storage.entries(f"{workdir}/events")[1]
    return [path.parent.name for path in (workdir / "events").glob("*/event.json")]


def status(workdir: Workdir) -> dict[str, Any]:
    """Where the run is, a `Place`; `UserError` if nothing has run there."""
    try:
        found = records.parsed((workdir / "status.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"--workdir={workdir}: no status.json there; has a run started?") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or records.of(Place, found) is None:
        raise UserError(f"{workdir / 'status.json'}: is damaged; a start of the run writes it anew")
    return found


def reached(workdir: Workdir) -> int:
    """The position that the run has come to; 0 before it has first said so."""
    return status(workdir)["position"] if (workdir / "status.json").exists() else 0


def saved(workdir: Workdir) -> int | None:
    """Step of the newest checkpoint that the run knew of; None if no status tells it."""
    try:
        return status(workdir).get("saved")
    except UserError:  # of a new run; a damaged one is written anew
        return None


def metrics(workdir: Workdir) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; of a step logged twice, after a resume, only the last."""
    newest: dict[tuple, dict[str, Any]] = {}
    for line in lines(workdir / "metrics.jsonl"):
        newest[line["step"], "loss" in line] = line
    return list(newest.values())


def write_status(
    workdir: Workdir, state: str, step: int, position: int, end: int, saved: int | None
) -> None:
    """Tells launchers and `jaxlm status` where the run is; `saved`: step of the last checkpoint."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    data = {
        "state": state,
        "step": step,
        "position": position,
        "end": end,
        "saved": saved,
        "time": now,
    }
    write_json(workdir / "status.json", data)


def lines(path: Path) -> list[dict[str, Any]]:
    """Whole JSON lines, none where there is no file; a torn last line, from a kill, is left out.

    `EnvironmentProblem` if it cannot be read.
    """
    return records.objects(texts(path))


def texts(path: Path, last_bytes: int | None = None) -> list[str]:
    """All lines, or those at the end of a file that may be long; else as `lines`."""
    try:
        with path.open("rb") as file:
            if last_bytes is not None:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - last_bytes))
            text = file.read().decode(errors="replace")
            return text.removesuffix("\n").split("\n")  # other ends of lines may be in strings
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        raise EnvironmentProblem(f"{path}: cannot be read ({e.strerror})") from e
