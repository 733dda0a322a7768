"""What is held out, by type of text: what the recipe asks for, and what it came to."""

from collections.abc import Mapping
from typing import Any

from data_tools.heldout import HELDOUT_DUPLICATE
from data_tools.recipe import Recipe

SPLITS = ("train", "heldout")


def heldout(recipe: Recipe, counts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a type, in the order of the sources; `packed` are the documents in shards, and `barred`
    those that are in no split for saying the same as a held-out one."""
    rows = []
    for kind in dict.fromkeys(source.type for source in recipe.sources):
        here = [counts[s.name] for s in recipe.sources if s.type == kind]
        rows.append(
            {
                "type": kind,
                "asked": recipe.heldout.fraction_of(kind),
                "packed": sum(c[split]["documents"] for c in here for split in SPLITS),
                "packed_tokens": sum(c[split]["tokens"] for c in here for split in SPLITS),
                "documents": sum(c["heldout"]["documents"] for c in here),
                "tokens": sum(c["heldout"]["tokens"] for c in here),
                "barred": sum(c["dropped"].get(HELDOUT_DUPLICATE, 0) for c in here),
            }
        )
    return rows
