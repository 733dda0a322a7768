"""What `jaxlm status` prints."""

import math
import time
from collections.abc import Iterator
from typing import Any

from jaxlm.goodput import LOST, USEFUL, WORDS, Attempt, Goodput
from jaxlm.status import Due, Saved, Status

ATTEMPTS, EVENTS = 8, 5
"""How many of the last are shown."""
MORE = ("step", "action", "loss", "grad_norm", "size")
"""What is shown of an event besides its kind."""


def of(status: Status, now: float) -> Iterator[str]:
    """`now`: seconds since 1970."""
    yield _state(status, now)
    yield ""
    yield from (f"{name:<13}{text}" for name, text in _facts(status, now) if text)
    if status.goodput is not None:
        yield from _goodput(status.goodput)
        yield from _attempts(status)
    yield from _events(status)


def _state(status: Status, now: float) -> str:
    heard = None if status.heard is None else _ago(now - status.heard)
    if status.state == "training":
        at = f"pid {status.pid or '?'}, at {status.doing or 'its start'}"
        return f"training: {at}" + (f"; last heard of {heard}" if heard else "")
    when = f", {heard}" if heard else ""
    if status.state == "done":
        return f"done{when}"
    place = "the last full checkpoint" if status.full else "its start"
    again = f"the same command goes on from {place}"
    if status.state == "stopped":
        return f"stopped as asked{when}; {again}"
    return (
        "dead: no process is there" + (f", last heard of {heard}" if heard else "") + f"; {again}"
    )


def _facts(status: Status, now: float) -> Iterator[tuple[str, str]]:
    share = f"{status.position / status.end:>8.1%}" if status.end else ""
    yield "step", f"{status.step:,}" + (f" of {status.steps:,}" if status.steps else "")
    yield "rows", f"{status.position:,} of {status.end:,}{share}"
    if status.tokens is not None and status.tokens_end is not None:
        yield "tokens", f"{_count(status.tokens)} of {_count(status.tokens_end)}"
    if status.left_s and status.steps_per_s:
        rate = f"{1 / status.steps_per_s:.3g} s a step with all waits, as of late"
        yield "time left", f"{duration(status.left_s)}, at {rate}"
    if status.loss is not None:
        heldout = ", ".join(f"{name} {loss:.4f}" for name, loss in status.heldout.items())
        yield "loss", f"{status.loss:.4f}" + (f"; held-out: {heldout}" if heldout else "")
    if status.speed is not None:
        s = status.speed
        mfu = "MFU not known" if math.isnan(s.mfu) else f"MFU {s.mfu:.1%}"
        waits = f"{s.data_wait_share:.1%} of it waiting for rows"
        yield (
            "speed",
            f"{s.tokens_per_s:,.0f} tokens/s, {mfu}, {s.step_time_s:.3g} s a step, {waits}",
        )
    yield "checkpoint", _saved(status.full, status.full_due, now)
    yield "snapshot", _saved(status.snapshot, status.snapshot_due, now)
    if status.skips.windows:
        rows = sum(stop - start for start, stop in status.skips.windows)
        backs = len(set(status.skips.events) - {None})
        yield "skipped", f"{rows:,} rows in {len(status.skips.windows)} windows; went back {backs}x"
    if status.replicas is not None:
        yield "copies", _copies(status.replicas)


def _saved(saved: Saved | None, due: Due | None, now: float) -> str:
    there = "none yet" if saved is None else f"step {saved.step:,}, {_ago(now - saved.time)}"
    kept = "" if saved is None else f"; {saved.kept} kept"
    if due is None or due == (None, None):
        return there + kept
    moments = [f"after step {due.step:,}"] if due.step is not None else []
    if due.time is not None:
        moments.append(f"in {duration(max(0.0, due.time - now))}")
    return f"{there}{kept}; the next {' or '.join(moments)}"


def _copies(found: dict[str, Any]) -> str:
    """`replicas.json` in words."""
    share = found.get("comparable_bytes", 0) / (found.get("all_bytes") or 1)
    said = [f"{share:.0%} of the state is held more than once"] if share else []
    agreed, verified = found.get("agreed_at_step"), found.get("verified_at_step")
    said += [] if agreed is None else [f"the same at step {agreed:,}"]
    said += [] if verified is None else [f"a step done twice agreed at step {verified:,}"]
    return "; ".join(said)


def _goodput(found: Goodput) -> Iterator[str]:
    wall_s, count = found.wall_s, len(found.attempts)
    yield ""
    attempts = f"{count} attempt{'s' if count > 1 else ''}"
    yield f"where the time has gone: {duration(wall_s)}, {attempts}"
    for name, seconds in found.seconds.items():
        share = f"{seconds / wall_s:.1%}" if wall_s else ""
        steps = f" ({found.lost_steps:,})" if name == LOST else ""
        good = "   goodput" if name == USEFUL else ""
        yield f"  {WORDS.get(name, name) + steps:<52}{duration(seconds):>14}{share:>9}{good}"


def _attempts(status: Status) -> Iterator[str]:
    assert status.goodput is not None
    found = status.goodput.attempts
    yield ""
    yield f"  {'attempt, began':<28}{'ran':>14}{'steps':>20}{'lost':>8}  ended"
    for i, attempt in list(enumerate(found, 1))[-ATTEMPTS:]:
        running = status.state == "training" and i == len(found)
        yield _attempt(i, attempt, running)


def _attempt(number: int, attempt: Attempt, running: bool) -> str:
    began = f"{number:>4}  {moment(attempt.began)}"
    steps = (
        "none" if attempt.first_step is None else f"{attempt.first_step:,}-{attempt.last_step:,}"
    )
    end = "" if running else attempt.end or "killed, or its machine was lost"
    line = f"  {began:<28}{duration(attempt.seconds):>14}{steps:>20}{attempt.lost_steps:>8,}  "
    return (line + ("runs" if running else end)).rstrip()


def _events(status: Status) -> Iterator[str]:
    if not status.events:
        return
    yield ""
    counts = ", ".join(f"{kind} {n}" for kind, n in status.counts.items())
    yield f"events: {len(status.events)} ({counts})"
    for event in status.events[-EVENTS:]:
        more = ", ".join(f"{n} {_short(event[n])}" for n in MORE if event.get(n) is not None)
        yield f"  {event.get('time', '?'):<26}{event.get('kind', '?'):<12}{more}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if number >= 0.999995 * size:  # it would be shown as 1000.00 of the smaller unit
            return f"{number / size:.2f}{unit}"
    return f"{number:,}"


def moment(seconds: float) -> str:
    """A time of the wall clock, as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def duration(seconds: float) -> str:
    """In two units."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for (unit, size), (smaller, part) in (
        (("d", 86400), ("h", 3600)),
        (("h", 3600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    raise AssertionError(seconds)


def _ago(seconds: float) -> str:
    return f"{duration(max(0.0, seconds))} ago"
