"""What was kept, what was dropped and why: report.json and a page that needs nothing else.

summary.py counts by source; gather.py makes report.json of what the stages said (funnel.py,
samples.py, duplicates.py, heldout.py, packing.py, mixture.py); page.py writes that as report.html
(losses.py, corpus.py, training.py: its sections; plots.py, tables.py, markup.py, style.py: what
they are made of).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from data_tools.recipe import Recipe
from data_tools.report.gather import gather
from data_tools.report.page import page
from data_tools.report.summary import summarize
from data_tools.stage import StageResult
from data_tools.state import state
from jaxlm.data.mixture_plan import Plan
from jaxlm.workdir import write_json

__all__ = ["lines", "summarize", "write_report"]


def write_report(
    workdir: Path,
    recipe: Recipe,
    missing: Mapping[str, str],
    results: Mapping[str, StageResult],
    plan: Plan | None,
) -> None:
    """Writes report.json and report.html, each whole or not at all.

    `plan`: of the run that the recipe states; None if it states none.
    """
    data = gather(recipe, missing, results, plan) | {"state": state(workdir)}
    write_json(workdir / "report.json", data)
    temporary = workdir / "report.html.tmp"
    temporary.write_text(page(data), encoding="utf-8")
    temporary.replace(workdir / "report.html")


def lines(workdir: Path) -> Iterator[str]:
    """A line for each source of report.json: what is in the shards, and what is not, with reasons;
    and one for each note and alarm."""
    report = json.loads((workdir / "report.json").read_text(encoding="utf-8"))
    for name, s in report["sources"].items():
        excluded = {reason: lost["documents"] for reason, lost in s["excluded"].items()}
        lost = {**s["dropped"], **excluded, **s["bad"]}
        why = ", ".join(f"{rule} {n:,}" for rule, n in lost.items())
        packed = {key: s["train"][key] + s["heldout"][key] for key in ("documents", "tokens")}
        yield (
            f"{name}: kept {packed['documents']:,} of {s['documents']:,} documents "
            f"({why or 'none lost'}), {packed['tokens']:,} tokens, "
            f"{s['heldout']['documents']:,} documents held out"
        )
    yield from (f"NOTE: {note}" for note in report["notes"])
    yield from (f"ALARM: {alarm}" for alarm in report["alarms"])
