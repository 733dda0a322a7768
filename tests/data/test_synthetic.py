"""Synthetic rows: repeatable, apart from the held-out ones, and with something to learn."""

import numpy as np
import pytest

from jaxlm.data.synthetic import BOS_ID, PAD_ID, SyntheticHeldOut, SyntheticRows


def test_a_row_depends_on_seed_split_and_position_alone():
    rows = SyntheticRows(0, 64, 300)
    whole = rows.rows(np.arange(50))
    assert (rows.rows(np.array([31, 7])) == whole[[31, 7]]).all()
    assert (np.concatenate(list(rows.stream([np.arange(9), np.arange(9, 50)]))) == whole).all()
    others = [SyntheticRows(1, 64, 300), SyntheticRows(0, 64, 300, "heldout")]
    every = np.concatenate([whole, *(other.rows(np.arange(50)) for other in others)])
    assert len(set(map(bytes, every))) == 150
    assert rows.rows(np.array([2**33])).tobytes() != whole[0].tobytes()


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(3, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
)
def test_ids_are_in_the_vocabulary(vocab_size, dtype):
    ids = SyntheticRows(0, 512, vocab_size).rows(np.arange(20))
    assert ids.shape == (20, 513) and ids.dtype == dtype
    assert ids.min() == BOS_ID and ids.max() < vocab_size
    with pytest.raises(ValueError, match="vocab_size=2: must be above 2"):
        SyntheticRows(0, 512, 2)


def test_most_ids_follow_from_the_one_before():
    ids = SyntheticRows(0, 1024, 1000).rows(np.arange(50)).astype(int)
    follows = (ids[:, 1:] == ids[:, :-1] + 1).mean()
    assert 0.84 < follows < 0.88  # 7 in 8, less document starts
    assert 1 / 150 < (ids == BOS_ID).mean() < 1 / 110


def test_held_out_rows_end_in_padding():
    held = SyntheticHeldOut(0, 64, 300, count=5)
    ids = held.rows(np.arange(3, 8))
    assert len(held) == 5
    assert (ids[:2] == SyntheticRows(0, 64, 300, "heldout").rows(np.array([3, 4]))).all()
    assert (ids[2:] == PAD_ID).all()


def test_golden_rows():
    """If this moves, a run on synthetic rows cannot be resumed: raise `synthetic.VERSION`."""
    row = SyntheticRows(7, 15, 300).rows(np.array([5]))[0]
    assert row.tolist() == [216, 217, 218, 219, 220, 221, 140, 141, 65, 66, 67, 47, 48, 49, 50, 51]
