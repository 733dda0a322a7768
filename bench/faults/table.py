"""All rows of the campaign. A new one is a function of a `Place`, and a line here."""

from collections.abc import Callable
from typing import NamedTuple

from bench.faults import damage, data, elastic, kills, numbers, stopped, storage, stores
from bench.faults.place import Outcome, Place


class Row(NamedTuple):
    """A kind of fault."""

    run: Callable[[Place], Outcome]
    tries: int
    """How many faults of it."""
    means: str
    """What is done, and what "survived" means."""


ROWS: dict[str, Row] = {
    "kills": Row(
        kills.kills, 50,
        "SIGKILL at random moments of one of two processes, or of both and their launcher, with a "
        "save every 3 steps: every other among steps and saves, the rest in start-ups and "
        "compilations. Survived: the run ends, its final state is bit-identical to the undisturbed "
        "run's, and the steps that count were given every sequence exactly once",
    ),
    "terms": Row(
        kills.terms, 20,
        "SIGTERM to one of two processes or to the launcher. Survived: the run is saved, at or "
        "after the step that it was in, within 30 s, and ends in the same bits",
    ),
    "stopped": Row(
        stopped.stopped, 4,
        "SIGSTOP to one of two processes, in turn. Survived: the other names it and where it was, "
        "ends for a new start, the launcher ends the one that stands and starts both again, and "
        "the run ends in the same bits",
    ),
    "elastic": Row(
        elastic.elastic, 12,
        "A run of one process on one device goes on with 1, 2 and 4 processes, on four meshes of "
        "four devices each. Survived: the same sequences, once each, and a final state within 1e-6",
    ),
    "damage": Row(
        damage.damage, 20,
        "The newest checkpoint truncated, with a flipped bit, without a file, without its commit "
        "marker. Survived: it is refused by name, no file is changed, and `--fallback` goes on "
        "from the one before, to the same bits",
    ),
    "full-disk": Row(
        storage.full_disk, 3,
        "The disk fills up while a run trains, and has room again. Survived: the run says so and "
        "goes on, the checkpoint before is whole, a later save succeeds, the same bits",
    ),
    "read-only": Row(
        storage.read_only, 1,
        "A work directory on a read-only file system. Survived: exit code 78 with the directory "
        "and the remedy, before anything is compiled",
    ),
    "one-cannot-save": Row(
        storage.one_cannot_save, 4,
        "Storage fails under one of two processes alone, once before and once half-way through "
        "its writes, for process 0 and for process 1. Survived: both call the save off, say which "
        "process it was, train on, and the next save succeeds",
    ),
    "slow-store": Row(
        storage.slow_store, 1,
        "Each file system call of a checkpoint's writes and syncs takes 50 ms more (a library "
        "before libc, which counts them). Survived: saves take longer, steps go on while one is "
        "written, the same bits",
    ),
    "stores": Row(
        stores.failing, 40,
        "A work directory by URL, in S3 and in Google Cloud Storage (servers on loopback), with "
        "requests that fail (503, connection reset, body cut short, slow), a SIGKILL of one of two "
        "processes and one of all. Survived: the same losses in the log and the same final bits as "
        "on a disk",
    ),
    "nan": Row(
        numbers.nan, 3,
        "A learning rate that makes the parameters overflow. Survived: the run stops by itself, "
        "and all that it saved is finite. In another run one step with a loss that is not finite, "
        "one with such a gradient alone. Survived: the bits of a run that never saw these batches",
    ),
    "spike": Row(
        numbers.spike, 1,
        "A batch of random tokens after a loss that has long fallen. Survived: the run goes back, "
        "jumps over it, and ends in the bits of a run that never saw it",
    ),
    "bad-shard": Row(
        data.bad_shard, 8,
        "A shard with a flipped bit, or cut short. Survived: the run stops with an error that "
        "names the shard, or the bit (not all of them) was of no record and the final state is the "
        "same to the bit; with the shard restored the run ends in the same bits",
    ),
    "slow-shard": Row(
        data.slow_shard, 1,
        "Every read of rows takes 2 s more. Survived: the same bits, "
        "and the lines of the log show that it is data that is waited for",
    ),
    "vanished-data": Row(
        data.vanished, 2,
        "The corpus is moved away while a run trains, and under one that was killed half-way. "
        "Survived: the first ends, or stops and names it; the second is refused by name and, with "
        "the corpus back in place, resumes; the same bits",
    ),
    "clock-jump": Row(
        numbers.clock_jump, 2,
        "The wall clock jumps a day forward, a day back, between two saves by the clock "
        "(`time.time` shifted in the process). Survived: saves keep their interval before, across "
        "and after the jump, by the times of their files; the same bits",
    ),
}  # fmt: skip
