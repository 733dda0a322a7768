"""Signatures: bit for bit those of datasketch."""

import numpy as np
import pytest
from datasketch import MinHash

from data_tools.dedup.config import ShingleConfig
from data_tools.dedup.minhash import band_keys, signatures
from data_tools.dedup.shingles import shingles
from tests.data_tools.dedup.material import chinese, english


@pytest.mark.parametrize(("count", "seed"), [(128, 1), (112, 1), (16, 42)])
def test_parity_with_datasketch(count, seed):
    texts = ["".join(chinese(0, 400)), " ".join(english(0, 30)), "".join(chinese(1, 25))]
    hash_S, bounds = shingles(texts, False, ShingleConfig())
    signature_KT = signatures(hash_S.astype(np.uint32), bounds, count, seed)
    for text, signature_K in enumerate(signature_KT.T):
        theirs = MinHash(count, seed, hashfunc=int, scheme="affine32")
        for hash in hash_S[bounds[text] : bounds[text + 1]].astype(np.uint32):
            theirs.update(hash)
        assert signature_K.dtype == theirs.hashvalues.dtype
        assert signature_K.tolist() == theirs.hashvalues.tolist()


def test_signatures_estimate_jaccard():
    shared, own = np.arange(8000, dtype=np.uint32), np.arange(8000, 10000, dtype=np.uint32)
    both = np.concatenate([shared, own[:1000], shared, own[1000:]])
    one, other = signatures(both, np.array([0, 9000, 18000]), 4096, 1).T
    assert (one == other).mean() == pytest.approx(0.8, abs=0.02)


def test_keys_are_equal_where_all_rows_of_a_band_are():
    signature_KT = np.zeros((6, 4), np.uint32)
    signature_KT[2, 1] = 1  # the first row of band 1
    signature_KT[5, 2] = 1  # the last row of band 2
    key_BT = band_keys(signature_KT, 3)
    assert (key_BT[:, 0] == key_BT[:, 3]).all()
    assert (key_BT[:, [0]] == key_BT[:, 1:3]).tolist() == [
        [True, True],
        [False, True],
        [True, False],
    ]
    assert len(np.unique(key_BT[:, 0])) == 3  # bands do not meet
