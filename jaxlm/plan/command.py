"""`jaxlm plan`: a config and a target in; a report out, on request with a search or ablations."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from jaxlm import config, schema
from jaxlm.config import Config
from jaxlm.plan import ablate, lines, preemption, prices, report, search, target
from jaxlm.plan.ablate import Ablation
from jaxlm.plan.figures import DOES_NOT_FIT
from jaxlm.plan.report import Options
from jaxlm.plan.search import Search
from jaxlm.schema import ConfigError


class Wishes(NamedTuple):
    """What is asked for besides the plan itself."""

    as_json: bool = False
    search: bool = False
    ablate: bool = False
    compiles: int | None = None
    """Programs that a search compiles, at most."""


COMPILES = 6
"""Of a search, if nothing is said."""


def plan(
    path: Path,
    overrides: Sequence[str],
    target_name: str,
    slices: int,
    options: Options,
    wishes: Wishes,
) -> int:
    """Plans, and prints: 0 if it fits, 2 if not. With a search: 0 if a layout was found."""
    if wishes.compiles is not None and wishes.compiles < 1:
        raise ConfigError(f"--compiles={wishes.compiles}: must be at least 1")
    if wishes.compiles is not None and not wishes.search:
        raise ConfigError(f"--compiles={wishes.compiles}: is about a search; give --search too")
    if wishes.search and wishes.ablate:
        raise ConfigError("--search --ablate: one at a time; ablate the layout that a search finds")
    on = target.parse(target_name, slices)
    prices.of(on.chip.name, options.price, options.spot_price)  # mistakes first, then minutes
    preemption.check(options.preemptions_per_day, options.write_gbs, options.restart_minutes)
    cfg, note = load(path, overrides, target_name)
    if note:
        say(note)
    options = options._replace(name=str(path))
    if wishes.search:
        found = search.search(cfg, on, options, wishes.compiles or COMPILES, say)
        if wishes.as_json:
            print(json.dumps({"search": searched(found)}, indent=1))
        else:
            show(search.lines(found, on.chip.memory_bytes))
        return 0 if found.best else DOES_NOT_FIT
    started = time.perf_counter()
    patience = "; a TPU's compiler may take minutes" if on.chip.platform == "tpu" else ""
    say(f"compiling {path} for {on}{patience}")
    planned = report.plan(cfg, on, options)
    say(f"planned in {time.perf_counter() - started:.0f} s")
    ablations = ablate.ablate(cfg, on, options, say, planned) if wishes.ablate else iter(())
    if wishes.as_json:
        data = planned.to_json()
        if wishes.ablate:
            data["ablations"] = [ablated(a) for a in ablations]
        print(json.dumps(data, indent=1))
    else:
        show(lines.lines(planned, date.today()))
        if wishes.ablate:
            print()
            show(ablate.lines(ablations))
    return 0 if planned.fits else DOES_NOT_FIT


def load(path: Path, overrides: Sequence[str], target_name: str) -> tuple[Config, str]:
    """The config for a target, and a note if the file has none of its own for it.

    A file with named targets gives its layout for this one, or else for another of the same chip,
    or its first; an override may still change it.
    """
    file, chosen = schema.split_target(path)
    known = schema.targets(path)
    if chosen is not None or not known:
        return config.load(path, tuple(overrides)), ""
    if target_name in known:
        return config.load(f"{file}:{target_name}", tuple(overrides)), ""
    chip = target_name.partition(":")[0]
    nearest = next((name for name in known if name.partition(":")[0] == chip), known[0])
    return config.load(f"{file}:{nearest}", tuple(overrides)), (
        f"{file} has no layout for {target_name}, only for {', '.join(known)}: planned with that "
        f"of {nearest}; set --config.mesh.data, fsdp and tensor, or let --search find a better one"
    )


def say(line: str) -> None:
    """Progress, on standard error."""
    print(f"jaxlm plan: {line}", file=sys.stderr, flush=True)


def show(text: Iterable[str]) -> None:
    """Prints lines as they come: those of ablations take their time."""
    for line in text:
        print(line, flush=True)


def searched(found: Search) -> dict[str, Any]:
    """A search as plain data."""
    return {
        "estimated": found.estimated,
        "tried": [
            {
                "overrides": t.candidate.overrides(),
                "estimated_bytes": t.candidate.memory_bytes,
                "estimated_s": t.candidate.rank_s,
                "plan": t.plan.to_json(),
            }
            for t in found.tried
        ],
        "best": found.best.candidate.overrides() if found.best else None,
    }


def ablated(a: Ablation) -> dict[str, Any]:
    """An ablation as plain data."""
    return {
        "technique": a.technique,
        "textbook": a.textbook,
        "saved": a.saved,
        "reason": a.reason,
        "without": a.without and a.without.to_json(),
        "using": a.using and a.using.to_json(),
    }
