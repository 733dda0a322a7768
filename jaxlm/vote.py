"""Whether all processes have done their part of a save: it is committed by all, or by none.

Orbax has them wait for each other, but not learn of a failure: a process that cannot write leaves
the others waiting until their barrier gives up, and their next save behind it.
"""

import itertools
import json
from collections import deque
from typing import Any

import jax

from jaxlm import cluster

WRITTEN, COMMITTED = STAGES = ("async_write_complete", "async_commit_complete")
"""Where Orbax has all wait: when each has written, and when process 0 has committed."""

_votes = itertools.count()


class CalledOff(Exception):
    """Another process could not do its part."""


class Vote:
    """Of one save; all processes make the same ones in the same order. An Orbax `BarrierSyncFn`."""

    def __init__(self) -> None:
        self._number = next(_votes)
        self._open = deque(STAGES)
        self._shares = f"jaxlm/save/{self._number}/shares"

    def __call__(self, *, key: str, timeout_ms: int) -> None:
        """Waits at a stage until all have come to it; `CalledOff` if one of them has failed.

        Orbax's other barriers guard a flag that nobody reads.
        """
        if jax.process_count() > 1 and any(stage in key for stage in STAGES):
            failed = self._come(timeout_ms)
            if failed:
                self._open.clear()
                names = " and ".join(map(cluster.name, failed))
                raise CalledOff(f"{names} could not: see the log there")

    def hand_in(self, share: Any) -> None:
        """Leaves plain data for process 0; before the first stage."""
        cluster.key_values().key_value_set(
            f"{self._shares}/{jax.process_index()}", json.dumps(share)
        )

    def handed_in(self) -> list[Any]:
        """On process 0, after the first stage: what each has left."""
        found = cluster.key_values().key_value_dir_get(self._shares)
        cluster.key_values().key_value_delete(self._shares)
        if len(found) != jax.process_count():
            raise CalledOff(f"{len(found)} of {jax.process_count()} processes said what they wrote")
        return [json.loads(text) for _, text in found]

    def fail(self, timeout_s: float) -> None:
        """Tells the others that this process could not do its part, once they have done theirs.

        Does nothing if they know, or if it was them.
        """
        if jax.process_count() > 1 and self._open:
            self._come(round(timeout_s * 1000), failed=True)
            self._open.clear()

    def _come(self, timeout_ms: int, failed: bool = False) -> list[int]:
        """The processes that have failed."""
        client = cluster.key_values()
        key = f"jaxlm/save/{self._number}/{self._open.popleft()}"
        if failed:
            client.key_value_set(f"{key}/{jax.process_index()}", "failed")
        try:
            client.wait_at_barrier(key, timeout_ms)
        except Exception:
            self._open.clear()  # nobody will come to a later stage
            raise
        return sorted(int(k.rpartition("/")[2]) for k, _ in client.key_value_dir_get(key))
