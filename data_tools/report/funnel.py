"""The funnel: documents and bytes of a source from the raw files to the corpus, step by step."""

from collections.abc import Mapping
from typing import Any

from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.recipe import Recipe
from data_tools.report.summary import DROPPING, reports, total
from data_tools.stage import StageResult

EDITS = {"clean": "changed by rules", "privacy": "masked"}
"""Steps that lose bytes inside of documents, at the end of a stage; a repair may add some."""


def funnels(recipe: Recipe, results: Mapping[str, StageResult]) -> dict[str, list[dict[str, Any]]]:
    """Source -> steps in order, the same for all sources; the first is `read`.

    A step has the documents and bytes that are left after it, and those lost in it; an `edit` loses
    no documents.
    """
    order = (
        "exact_duplicate",
        HELDOUT_DUPLICATE,
        "contaminated",
        "boilerplate",
        *(rule.name for rule in recipe.rules),
    )
    steps = []
    for stage in DROPPING:
        seen = total([r["dropped"] for r in reports(results, stage)])
        # rules of the recipe in its order, then what has no place there
        rules = sorted(seen, key=lambda r: (order.index(r) if r in order else len(order), r))
        steps += [(stage, rule) for rule in rules]
        if stage in EDITS and stage in results:
            steps.append((stage, EDITS[stage]))
    return {s.name: _funnel(s.name, steps, results) for s in recipe.sources}


def _funnel(
    source: str, steps: list[tuple[str, str]], results: Mapping[str, StageResult]
) -> list[dict[str, Any]]:
    read = reports(results, "read", source)
    documents = sum(r["documents"] for r in read)
    text_bytes = sum(r["text_bytes"] for r in read)
    funnel = [_step("read", False, documents, text_bytes, 0, 0)]
    for stage, name in steps:
        here = reports(results, stage, source)
        edit = name == EDITS.get(stage)
        if edit:
            lost, lost_bytes = 0, text_bytes - sum(r["text_bytes"] for r in here)
        else:
            tallies = [r["lost"][name] for r in here if name in r["lost"]]
            lost = sum(t["documents"] for t in tallies)
            lost_bytes = sum(t["text_bytes"] for t in tallies)
        documents, text_bytes = documents - lost, text_bytes - lost_bytes
        funnel.append(_step(name, edit, documents, text_bytes, lost, lost_bytes))
    return funnel


def _step(
    name: str, edit: bool, documents: int, text_bytes: int, lost: int, lost_bytes: int
) -> dict[str, Any]:
    return {
        "step": name,
        "edit": edit,
        "documents": documents,
        "text_bytes": text_bytes,
        "lost_documents": lost,
        "lost_bytes": lost_bytes,
    }


def overall(funnels: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The funnel of all sources together."""
    keys = ("documents", "text_bytes", "lost_documents", "lost_bytes")
    return [
        steps[0] | {key: sum(step[key] for step in steps) for key in keys}
        for steps in zip(*funnels.values(), strict=True)
    ]
