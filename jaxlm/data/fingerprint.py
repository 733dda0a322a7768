"""Fingerprints of a run's data: all that decides which ids lie at which position, as plain data."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jaxlm.errors import UserError

MIXTURE = {
    "stage_starts": "rows where the stages of the mixture begin",
    "stage_counts": "proportions of the sources, by stage of the mixture",
}
"""Entries that say what the mixture came to."""

REASONS = (
    "The mixture hangs on config.data.mixture or the corpus's own proportions, on the epochs that "
    "a source may have, and on config.train.end: stages that end at a share of the run, and "
    "sources that would be repeated too often, move with it. "
)

LONGEST = 200
"""Characters of a value in a message."""


class FingerprintError(UserError):
    """Other data than it was: names what differs."""


def check(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """`FingerprintError` if the data of a checkpoint is not the data at hand."""
    changed = [key for key in {**saved, **now} if saved.get(key) != now.get(key)]
    if changed:
        found = "; ".join(
            f"{MIXTURE.get(key, key)}: was {_short(saved.get(key))}, is {_short(now.get(key))}"
            for key in changed
        )
        raise FingerprintError(
            f"the data is not that of the checkpoint: {found}. "
            + (REASONS if MIXTURE.keys() & changed else "")
            + "Resume with the data and settings of the run, or start a new run in another work "
            "directory"
        )


def digest(fingerprint: Mapping[str, Any]) -> str:
    """16 hex digits that stand for a fingerprint."""
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
