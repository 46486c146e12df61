"""Zero channels behind the tokens change where rows lie in memory, and no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax.readouts import bilinear, dense, soopf, stride
from soopf_jax.types import Dims, PairView


@given(channels=st.integers(1, 4096))
def test_rows_are_an_odd_number_of_cache_lines_apart_for_few_zeros(channels):
    wide = jax.eval_shape(stride.widen, jax.ShapeDtypeStruct((3, channels), jnp.float32)).shape[1]
    if channels < stride.LEAST:
        assert wide == channels
    else:
        assert wide * 4 // 64 % 2 == 1
        assert wide % 16 == 0
        assert channels <= wide < channels + 32


def test_what_is_added_is_zero():
    tokens = jnp.ones((2, 256))
    assert jnp.array_equal(stride.widen(tokens), jnp.pad(tokens, ((0, 0), (0, 16))))
    assert stride.as_wide(jnp.ones(256), stride.widen(tokens)).shape == (272,)


def test_other_devices_keep_their_own_layout(gpu_forms):
    assert stride.widen(jnp.ones((2, 1024))).shape == (2, 1024)


@pytest.mark.parametrize("readout", [soopf.READOUT, dense.READOUT, bilinear.READOUT])
def test_energies_masks_and_gradients_are_those_of_the_channels_alone(readout, monkeypatch):
    dims = Dims(patches=9, channels=260, supports=3, operations=3)
    source, delta = jax.random.normal(jax.random.key(1), (2, 9, 260))
    params = jax.jit(readout.init, static_argnums=1)(jax.random.key(0), dims)

    def outcome(params):
        pair = readout.prepare(PairView(source, delta))

        def energy(params):
            output = readout.apply(params, pair, jnp.float32(0.7))
            return jnp.sum(jnp.log(output.energy)), output

        return pair, jax.grad(energy, has_aux=True)(params)

    wide, expected = jax.jit(lambda params: outcome(params))(params)
    monkeypatch.setattr(stride, "LEAST", 10_000)
    narrow, found = jax.jit(lambda params: outcome(params))(params)  # traced anew
    assert (wide.source.shape[1], narrow.source.shape[1]) == (272, 260)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
