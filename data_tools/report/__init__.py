"""What was kept, what was dropped and why: report.json and a page that needs nothing else."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from data_tools.recipe import Recipe
from data_tools.report.summary import reports, summarize
from data_tools.stage import StageResult
from jaxlm.schema import to_dict
from jaxlm.workdir import write_json

__all__ = ["lines", "summarize", "write_report"]


def write_report(
    workdir: Path, recipe: Recipe, missing: Mapping[str, str], results: Mapping[str, StageResult]
) -> None:
    """INTERIM until privacy and near dedup are wired: counts only."""
    data = {
        "sources": summarize(recipe, results),
        "missing": dict(missing),
        "notes": [f"source {name} is left out: {why}" for name, why in missing.items()],
        "tokenizer": reports(results, "tokenizer")[0],
        "recipe": to_dict(recipe),
    }
    write_json(workdir / "report.json", data)
    (workdir / "report.html").write_text("\n".join(data["notes"]), encoding="utf-8")


def lines(workdir: Path) -> Iterator[str]:
    """A line for each source of report.json: what was kept, and what was dropped and why."""
    sources = json.loads((workdir / "report.json").read_text(encoding="utf-8"))["sources"]
    for name, s in sources.items():
        why = ", ".join(f"{rule} {n:,}" for rule, n in {**s["dropped"], **s["bad"]}.items())
        yield (
            f"{name}: kept {s['kept']:,} of {s['documents']:,} documents ({why or 'none lost'}), "
            f"{s['tokens']:,} tokens, {s['heldout']['documents']:,} documents held out"
        )
