"""What grows, and what it is held against."""

import pytest

from bench.growth import BASE, CASES, Figures, config, table
from jaxlm.metrics import flops_per_token


@pytest.mark.parametrize("case", [case for case in CASES if case != BASE])
def test_each_case_doubles_one_thing(case):
    base, grown = config("bfloat16", {}), config("bfloat16", CASES[case])
    assert grown.model.compute_dtype == "bfloat16"
    assert grown.model.head_size == base.model.head_size
    sizes = [
        (c.model.n_layers, c.model.d_model, c.data.seq_len, c.train.batch_size)
        for c in (base, grown)
    ]
    assert sorted(b / a for a, b in zip(*sizes, strict=True)) == [1, 1, 1, 2]
    flops = [flops_per_token(c.model, c.data.seq_len) * c.batch_tokens for c in (base, grown)]
    assert 1.3 < flops[1] / flops[0] < 3.5


def test_ratios_are_to_the_base_of_the_same_round():
    base = [Figures(s, 1e12, 10**9, 2e9, 2 * 10**9) for s in (1.0, 2.0)]
    other = [Figures(s, 2e12, 3 * 10**9, 5e9, int(s) * 10**9) for s in (2.0, 6.0)]
    lines = table({BASE: base, "layers": other})
    assert lines[-1] == "| layers | 4.000 | 2.50 | 2.00 | 1.25 | 3.00 | 3.00 | 2.50 | 6.0 |"
