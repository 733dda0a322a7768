"""Devices that keep or compute wrong numbers and say nothing: what is done to notice them.

What several devices hold copies of is compared, and a step can be done twice. All processes make
the same calls, at positions that all come to. `replicas.json` in the work directory says what
could be compared, and how far it was.
"""

from typing import Any, NoReturn

import jax
import numpy as np

from jaxlm import replicas, state, workdir
from jaxlm.activity import HERE, Activity
from jaxlm.clock import crossed
from jaxlm.data.loader import Batch
from jaxlm.errors import EnvironmentProblem
from jaxlm.metrics import Writer
from jaxlm.replicas import Replicas
from jaxlm.run import Run
from jaxlm.state import TrainState
from jaxlm.step import Controls, Metrics


def compile_checksums(run: Run) -> Replicas:
    """For the state of a run."""
    definition = run.step
    return Replicas(run.mesh, state.abstract(definition.model, definition.optimizer, run.where))


class Checks:
    """Those of a run that has begun at `first_step`; says at once what they can see.

    `train_step`: as compiled by `step.compile_train_step`. `verify_first`: the next step is done
    twice, whatever `corruption.verify_every` says.
    """

    def __init__(
        self,
        run: Run,
        writer: Writer,
        train_step: Any,
        checksums: Replicas,
        first_step: int,
        verify_first: bool,
    ):
        self._run, self._writer = run, writer
        self._train_step, self._replicas = train_step, checksums
        cfg = run.cfg
        self._every = self._verify_every = None
        if cfg.corruption.compare_every is not None and checksums.share.comparable_bytes:
            self._every = cfg.rows("corruption.compare_every")
        if cfg.corruption.verify_every is not None:
            self._verify_every = cfg.rows("corruption.verify_every")
        self._verify_next = verify_first
        self._agreed = self._verified = None
        before = workdir.replicas(run.workdir) or {}  # for people, and written anew
        if before.get("agreed_at_step") is not None:
            self._agreed = min(before["agreed_at_step"], first_step)
        if before.get("verified_at_step") is not None:
            self._verified = min(before["verified_at_step"], first_step)
        self._compared: int | None = None
        """Step of the last comparison in this process."""
        writer.say(self._what())
        self._write()

    # ---- copies ----------------------------------------------------------------------------------

    def due(self, before: int, position: int) -> bool:
        """Whether copies are to be compared after this step; before a save they are in any case."""
        return crossed(self._every, before, position)

    def compare(self, train_state: TrainState, step: int) -> None:
        """Compares all copies of this state; `EnvironmentProblem` if some are not the same."""
        if self._every is None or step == self._compared:
            return
        with HERE.during(Activity.EVALUATE, "comparing what several devices hold"):
            found = self._replicas.differences(train_state)
        if found:
            self._stop_for_copies(found, step)
        self._agreed = self._compared = step
        self._write()

    def _stop_for_copies(self, found: list[replicas.Difference], step: int) -> NoReturn:
        wrong = list(replicas.lines(found, self._replicas))
        event = {
            "step": step,
            "kind": "copies-differ",
            "agreed": self._agreed,
            "differences": [
                {**d._asdict(), "suspects": [self._replicas.device(p) for p in d.suspects]}
                for d in found
            ],
        }
        self._writer.event(event, f"step {step}: copies of the state are not the same")
        with HERE.during(Activity.SAVE):
            self._run.checkpoints.wait()
        raise EnvironmentProblem(
            f"step {step}: devices that should hold the same numbers do not:\n  "
            + "\n  ".join(wrong)
            + f"\nNothing was saved of it. {_last(self._agreed, 'the copies were the same')}; the "
            f"newest checkpoint is {_step(self._run.checkpoints.latest())}. Take the machine of "
            "that device out, or test it; the same command then goes on from the checkpoint"
        )

    # ---- a step done twice -----------------------------------------------------------------------

    def step(
        self, given: TrainState, batch: Batch, controls: Controls, before: int
    ) -> tuple[TrainState, Metrics]:
        """The step at position `before`; twice if it is due, to compare.

        The state is donated; if the step is done twice, a copy waits in host memory.
        `EnvironmentProblem` if it comes out in two ways and could not in good health.
        """
        if not (self._verify_next or crossed(self._verify_every, before, batch.next_position)):
            return self._train_step(given, batch.rows_BT, controls)
        self._verify_next = False
        compiling = HERE.current.activity == Activity.COMPILE
        activity = Activity.COMPILE if compiling else Activity.EVALUATE
        with HERE.during(activity, "doing a step twice"):
            kept = _to_host(given)
            first = self._replicas.checksums(
                self._train_step(given, batch.rows_BT, controls)[0]
            )  # and let go: the second needs its room
            found, metrics = self._train_step(_from_host(kept), batch.rows_BT, controls)
            second = self._replicas.checksums(found)
        self._judge(first != second, int(found.step))
        return found, metrics

    def _judge(self, differs: np.ndarray, step: int) -> None:
        """`differs`: bool[D, L]."""
        if not differs.any():
            self._writer.say(f"step {step}, done twice, came out the same to the bit")
            self._verified = step
            self._write()
            return
        leaves = [self._replicas.names[n] for n in np.flatnonzero(differs.any(0)).tolist()]
        places = np.flatnonzero(differs.any(1)).tolist()
        devices = [self._replicas.device(place) for place in places]
        who = ", ".join(devices)
        if len(devices) == len(differs) > 1:
            who = "all devices: what one computes wrong goes to all of them"
        line = (
            f"step {step}, done twice from one state and one batch, came out in two ways: "
            f"{len(leaves)} of {differs.shape[1]} arrays differ, as {leaves[0]}, on {who}"
        )
        event = {"step": step, "kind": "step-differs", "leaves": leaves, "devices": devices}
        may = self._run.mesh.devices.flat[0].platform == "gpu"
        if may and not self._run.cfg.corruption.deterministic:
            line += (
                ". A GPU in good health may do so: only with config.corruption.deterministic=True "
                "is it a fault. Training goes on"
            )
            self._writer.event(event, line)
            return
        self._writer.event(event, f"step {step} came out in two ways")
        with HERE.during(Activity.SAVE):
            self._run.checkpoints.wait()
        good = [s for s in self._run.checkpoints.steps() if s <= (self._verified or 0)]
        raise EnvironmentProblem(
            f"{line}. {_last(self._verified, 'a step came out the same')}: checkpoints after it "
            f"may be wrong; the newest from before is {_step(max(good, default=None))}. Test the "
            "machines (of each alone, jaxlm train --verify-step), take out the faulty one, move "
            "away the checkpoints that may be wrong, and start again with --fallback"
        )

    # ---- what is said of it ----------------------------------------------------------------------

    def _what(self) -> str:
        share, cfg = self._replicas.share, self._run.cfg.corruption
        twice = "a step can be done twice instead: --verify-step, config.corruption.verify_every"
        if not share.comparable_bytes:
            return f"silent corruption: no two devices hold the same here, so {twice}"
        low, high = share.copies
        held = (
            f"silent corruption: {_size(share.comparable_bytes)} of the state's "
            f"{_size(share.all_bytes)} are held by {low if low == high else f'{low} to {high}'} "
            "devices each"
        )
        if self._every is None:
            return f"{held}, and not compared: config.corruption.compare_every=None"
        more = f"; {twice}" if share.comparable_bytes < share.all_bytes / 2 else ""
        return f"{held}, compared every {cfg.compare_every} and before each save{more}"

    def _write(self) -> None:
        if jax.process_index() != 0:
            return
        cfg = self._run.cfg.corruption
        found = {
            **self._replicas.share._asdict(),
            "compare_every": None if self._every is None else cfg.compare_every,
            "agreed_at_step": self._agreed,
            "verify_every": cfg.verify_every,
            "verified_at_step": self._verified,
        }
        with self._writer.going_on(workdir.REPLICAS):
            workdir.write_json(self._run.workdir / workdir.REPLICAS, found)


def _to_host(tree: Any) -> Any:
    """Copies of what this process's devices hold, and where they lay: a donation leaves them."""

    def copy(x: jax.Array) -> tuple:
        parts = [shard.data for shard in x.addressable_shards]
        return x.shape, x.sharding, [(np.array(part), part.sharding) for part in parts]

    return jax.tree.map(copy, tree)


def _from_host(kept: Any) -> Any:
    def place(leaf: tuple) -> jax.Array:
        shape, where, parts = leaf
        placed = [jax.device_put(data, own) for data, own in parts]
        return jax.make_array_from_single_device_arrays(shape, where, placed)

    is_kept = lambda x: type(x) is tuple  # noqa: E731 (the trees' own tuples have names)
    return jax.tree.map(place, kept, is_leaf=is_kept)


def _last(step: int | None, what: str) -> str:
    return f"It is not known that {what} before" if step is None else f"At step {step} {what}"


def _step(step: int | None) -> str:
    return "none" if step is None else f"that of step {step}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
