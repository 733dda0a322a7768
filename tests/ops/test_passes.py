"""Roundings by integers, beside casts."""

import jax
import numpy as np
from jax import numpy as jnp

from jaxlm.ops.passes import again, rounded


def test_rounds_to_the_nearest_as_a_cast_does_but_for_ties():
    """All that float32 can be, in steps: signs, subnormals, and the largest."""
    bits = np.arange(0, 2**32, 9973, dtype=np.uint32)
    bits = bits[~np.isnan(bits.view(np.float32))]
    x = bits.view(np.float32)
    found = np.asarray(rounded(jnp.asarray(x), jnp.dtype("bfloat16")))
    cast = x.astype(jnp.bfloat16)
    tie = bits & 0xFFFF == 0x8000
    assert found.dtype == cast.dtype and 0 < tie.sum() < 100
    same = found.view(np.uint16) == cast.view(np.uint16)
    assert same[~tie].all()


def test_ties_go_away_from_zero():
    """1 + 1/256 lies between 1 and 1 + 1/128."""
    x = jnp.array([1 + 1 / 256, -1 - 1 / 256, 1 + 3 / 256], jnp.float32)
    found = rounded(x, jnp.dtype("bfloat16")).astype(jnp.float32)
    np.testing.assert_array_equal(found, [1 + 2 / 256, -1 - 2 / 256, 1 + 4 / 256])


def test_nan_and_infinity_stay():
    """A step that has them is skipped, if it is seen."""
    x = jnp.array([jnp.nan, -jnp.nan, jnp.inf, -jnp.inf, 0 * jnp.inf, 3.4e38], jnp.float32)
    found = np.asarray(rounded(x, jnp.dtype("bfloat16")).astype(jnp.float32))
    np.testing.assert_array_equal(found, [np.nan, np.nan, np.inf, -np.inf, np.nan, np.inf])


def test_float32_stays_as_it_is():
    x = jnp.array([1 + 2**-23, jnp.nan])
    np.testing.assert_array_equal(rounded(x, x.dtype), x)


def test_what_is_read_again_is_kept_apart_from_the_first_reading():
    program = jax.jit(lambda x: again(x, x.max()))
    x, top = program(jnp.arange(3.0))
    np.testing.assert_array_equal(x, jnp.arange(3.0))
    assert float(top) == 2
    assert "optimization_barrier" in program.lower(x).as_text()
