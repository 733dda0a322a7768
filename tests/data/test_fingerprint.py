"""Fingerprints: what differs is named, in words where a number says little."""

import pytest

from jaxlm.data.fingerprint import FingerprintError, check, digest
from jaxlm.data.order import Order, Source, Stage
from jaxlm.data.synthetic import SyntheticRows


def order(*stages: Stage) -> dict:
    return Order({"a": Source((50,), 10), "b": Source((70,), 10)}, stages, 0, 10).fingerprint()


def test_other_data_than_the_checkpoints_is_refused():
    saved = SyntheticRows(0, 32, 300).fingerprint()
    check(saved, SyntheticRows(0, 32, 300).fingerprint())
    with pytest.raises(FingerprintError) as e:
        check(saved, SyntheticRows(1, 32, 500).fingerprint())
    assert str(e.value) == (
        "the data is not that of the checkpoint: seed: was 0, is 1; vocab_size: was 300, is 500. "
        "Resume with the data and settings of the run, or start a new run in another work directory"
    )


def test_a_mixture_that_has_moved_is_told_in_words():
    saved = order(Stage(40, (("a", 1.0), ("b", 1.0))), Stage(None, (("a", 3.0), ("b", 2.0))))
    moved = order(Stage(50, (("a", 1.0), ("b", 1.0))), Stage(None, (("a", 3.0), ("b", 2.0))))
    other = order(Stage(40, (("a", 1.0), ("b", 1.0))), Stage(None, (("a", 1.0), ("b", 4.0))))
    with pytest.raises(FingerprintError) as e:
        check(saved, moved)
    assert (
        "checkpoint: rows where the stages of the mixture begin: was [0, 40], is [0, 50]. The "
        "mixture hangs on config.data.mixture or the corpus's own proportions, on the epochs that "
        "a source may have, and on config.train.end: stages that end at a share of the run"
    ) in str(e.value)
    with pytest.raises(FingerprintError) as e:
        check(saved, other)
    assert (
        "checkpoint: proportions of the sources, by stage of the mixture: was "
        f"{saved['stage_counts']}, is {other['stage_counts']}. The mixture hangs on"
    ) in str(e.value)


def test_a_digest_stands_for_the_whole():
    one, other = SyntheticRows(0, 32, 300).fingerprint(), SyntheticRows(0, 32, 301).fingerprint()
    assert digest(one) == digest(dict(reversed(one.items()))) != digest(other)
