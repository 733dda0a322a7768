"""Files of a work directory or a corpus are data: nothing in them is ever run."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.small_corpus import make_corpus
from jaxlm import evidence, integrity, workdir
from jaxlm.data import manifest, skips
from jaxlm.data.tokenizer import open_tokenizer
from tests.data import read_batches


class Planted:
    """Unpickled, it leaves a file behind."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def read_rows(root: Path) -> None:
    read_batches.open_rows(str(root / "manifest.json")).rows(np.arange(8))


def read_events(root: Path) -> None:
    place = root / "events" / "one"
    (place / "event.json").write_text("{}")
    evidence.read(root, "one")


READERS: dict[str, Callable[[Path], object]] = {
    "status.json": workdir.status,
    "history.jsonl": workdir.history,
    "metrics.jsonl": workdir.metrics,
    "skips.json": skips.load,
    "events/one/event.json": lambda root: evidence.read(root, "one"),
    "events/one/batch.npy": read_events,
    "checksums.json": integrity.verify,
    "manifest.json": lambda root: manifest.load(root / "manifest.json"),
    "shards/zh-train-00000.array_record": read_rows,
    "tokenizer.model": lambda root: open_tokenizer(root / "tokenizer.model"),
    "tokenizer.json": lambda root: open_tokenizer(root / "tokenizer.json"),
}
"""All that is read, with who reads it; the arrays of a checkpoint are `tests/system`'s affair."""


@pytest.mark.parametrize("name", READERS)
def test_a_planted_pickle_is_not_unpickled(name, tmp_path):
    trace, root = tmp_path / "trace", tmp_path / "root"
    make_corpus(root, {"zh": [8]}, tokenizer=True)
    planted = root / name
    planted.parent.mkdir(parents=True, exist_ok=True)
    if planted.suffix == ".npy":
        array = io.BytesIO()
        np.save(array, np.array([Planted(trace)], object), allow_pickle=True)
        planted.write_bytes(array.getvalue())
    else:
        planted.write_bytes(pickle.dumps(Planted(trace)))
    with pytest.raises(Exception):  # noqa: B017 - what it is called is for other tests
        READERS[name](root)
        raise ValueError("read as if it were empty")
    assert not trace.exists()
    np.load(planted, allow_pickle=True)  # the plant is a live one
    assert trace.exists()
