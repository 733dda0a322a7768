"""What report.json holds: all that the stages said, added up, and as much of it as a page shows."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq

from data_tools.privacy.scrub import Scrubber
from data_tools.recipe import Recipe
from data_tools.report.duplicates import duplicates
from data_tools.report.funnel import funnels
from data_tools.report.heldout import heldout
from data_tools.report.mixture import mixture
from data_tools.report.packing import packing
from data_tools.report.samples import samples
from data_tools.report.summary import DROPPING, commits, reports, summarize, total
from data_tools.source import SourceConfig
from data_tools.stage import StageResult
from jaxlm.data.mixture import SHOWN
from jaxlm.data.mixture_plan import Plan
from jaxlm.schema import to_dict

BAD_PLACES = 50
"""Bad places of a source in the report; stages/read/*/bad.parquet has all."""
BOILERPLATE_LINES = 60
"""The most frequent lines in the report; stages/boilerplate/*/lines.parquet has all."""

type Results = Mapping[str, StageResult]
type Mask = Callable[[str], str]
"""Hides private data in what people are shown."""


def gather(
    recipe: Recipe, missing: Mapping[str, str], results: Results, plan: Plan | None
) -> dict[str, Any]:
    """The report of a whole build as plain data for JSON; private data in it is masked.

    `plan`: of the run that the recipe states, over the corpus that was built; None if it states
    none.
    """
    counts = summarize(recipe, results)
    data = {
        "sources": counts,
        "missing": dict(missing),
        "funnels": funnels(recipe, results),
        "samples": samples(results),
        "histograms": _histograms(recipe, results),
        "boilerplate": _boilerplate(recipe, results),
        "privacy": _privacy(recipe, results),
        "evaluation": _evaluation(results),
        "duplicates": duplicates(recipe, results, counts),
        "bad": {s.name: _bad_places(recipe, results, s) for s in recipe.sources},
        "throughput": _throughput(results),
        "workers": recipe.worker_count(),
        "tokenizer": reports(results, "tokenizer")[0],
        "heldout": heldout(recipe, counts),
        "packing": packing(recipe, results, counts),
        "mixture": mixture(plan),
        "recipe": to_dict(recipe),
    }
    alarms = data["duplicates"]["near"]["alarms"]
    return {"alarms": alarms, "notes": _notes(recipe, data)} | data


def _histograms(recipe: Recipe, results: Results) -> dict[str, Any]:
    """Lengths and qualities -> source -> kept and dropped -> bin -> documents.

    Quality is told of sources with scored rules: that of documents which came through all of them,
    or fell to the rule `quality`.
    """
    found: dict[str, Any] = {"lengths": {}, "qualities": {}}
    for source in recipe.sources:
        kept = reports(results, "tokenize", source.name)
        lost = {s: [r["lost"] for r in reports(results, s, source.name)] for s in DROPPING}
        all_lost = [t for s in DROPPING for rules in lost[s] for t in rules.values()]
        judged = [rules["quality"] for rules in lost["clean"] if "quality" in rules]
        judged += [t for s in DROPPING[1:] for rules in lost[s] for t in rules.values()]
        scored = any(rule.weight for rule in recipe.rules_for(source.type))
        for key, dropped in (("lengths", all_lost), ("qualities", judged)):
            if key == "qualities" and not scored:
                continue
            found[key][source.name] = {
                "kept": total([r[key] for r in kept]),
                "dropped": total([t[key] for t in dropped]),
            }
    return found


def _mask(recipe: Recipe, types: Iterable[str]) -> Mask:
    """For texts of sources of any of these types: nothing is shown that one of them would hide."""
    scrubbers = [Scrubber(recipe.privacy.of(kind), None) for kind in types]

    def mask(text: str) -> str:
        for scrubber in scrubbers:
            text = scrubber.mask(text)
        return text

    return mask


def _boilerplate(recipe: Recipe, results: Results) -> dict[str, Any]:
    """Lines found and removed, and the most frequent of those found."""
    mask = _mask(recipe, recipe.boilerplate.types)
    rows = []
    for commit in commits(results, "boilerplate"):
        for file in commit.input("lines.parquet"):
            with pq.ParquetFile(file.path) as table:  # the most frequent come first
                rows += next(table.iter_batches(BOILERPLATE_LINES)).to_pylist()
    rows.sort(key=lambda row: (-row["documents"], row["text"]))
    return {
        "types": list(recipe.boilerplate.types),
        "found": sum(r["lines"] for r in reports(results, "boilerplate")),
        "removed": sum(r["boilerplate_lines"] for r in reports(results, "clean")),
        "lines": [row | {"text": mask(row["text"])} for row in rows[:BOILERPLATE_LINES]],
    }


def _privacy(recipe: Recipe, results: Results) -> dict[str, Any]:
    """Spans found: type, policy, source -> count."""
    entities = [
        {"type": entity, "policy": policy, "source": source.name, "found": n}
        for source in recipe.sources
        for entity, policies in _entities(results, source.name).items()
        for policy, n in policies.items()
    ]
    return {"ner": recipe.privacy.ner, "entities": entities}


def _entities(results: Results, source: str) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for report in reports(results, "privacy", source):
        for entity, policies in report["entities"].items():
            sums[entity] = total([sums.get(entity, {}), policies])
    return sums


def _evaluation(results: Results) -> list[dict[str, Any]]:
    """Evaluation sets, the texts that could not be looked for, and the documents dropped."""
    dropped = total([r["contaminated"] for r in reports(results, "contaminated")])
    return [
        {
            "set": c.partition,
            "texts": c.report["texts"],
            "too short": c.report["too_short"],
            "documents dropped": dropped.get(c.partition, 0),
        }
        for c in commits(results, "evaluation_runs")
    ]


def _bad_places(recipe: Recipe, results: Results, source: SourceConfig) -> list[dict[str, Any]]:
    mask = _mask(recipe, [source.type])
    places = [b for r in reports(results, "read", source.name) for b in r["bad_samples"]]
    return [b | {"detail": mask(b["detail"])} for b in places[:BAD_PLACES]]


def _throughput(results: Results) -> list[dict[str, Any]]:
    """Stages in order; seconds of the workers, added up, and those on the clock of this build."""
    return [
        {
            "stage": stage,
            "partitions": len(result.commits),
            "ran": len(result.ran),
            "worker_seconds": round(sum(c.seconds for c in result.commits), 3),
            "seconds": round(result.seconds, 3),
        }
        for stage, result in results.items()
    ]


def _notes(recipe: Recipe, data: Mapping[str, Any]) -> list[str]:
    """What a reader must not miss."""
    notes = [f"source {name} is left out: {why}" for name, why in data["missing"].items()]
    packed = {(part["source"], part["split"]) for part in data["packing"]["parts"]}
    buckets = data["packing"]["buckets"]
    for source in recipe.sources:
        counts = data["sources"][source.name]
        splits = ("train", "heldout") if recipe.heldout.fraction_of(source.type) else ("train",)
        for split in splits:
            if not counts[split]["documents"]:
                notes.append(f"source {source.name}: no document is in the split {split}")
        for bucket in (b["source"] for b in buckets if b["origin"] == source.name):
            if counts["train"]["documents"] and (bucket, "train") not in packed:
                notes.append(f"source {source.name}: no document is in the bucket {bucket}")
        if bad := sum(counts["bad"].values()):
            notes.append(f"source {source.name}: {bad:,} bad records or files gave no document")
    plan = data["mixture"]
    for kind in plan["types"] if plan and plan["proportions"] else ():
        asked, planned = kind["asked"], kind["planned"]
        if planned < asked - SHOWN:
            shares = f"{planned:.1%} of the tokens instead of {asked:.1%}"
            notes.append(f"type {kind['name']} runs short: {shares}")
    return notes
