"""The forms of a GPU, run here: the same values and gradients as those of a CPU, up to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from soopf_jax.fitting import program
from soopf_jax.readouts import bilinear, dense, forms, soopf
from soopf_jax.readouts.innovation import layer_norm, unit_scale
from soopf_jax.types import Dims, PairView

RNG = np.random.default_rng(0)


def random(*shape):
    return jnp.asarray(RNG.standard_normal(shape, dtype=np.float32))


def test_fold_is_a_product_with_the_gradients_of_one(gpu_forms):
    weights, queries, gradient = random(7, 5), random(3, 5), random(7, 3)
    value, backward = jax.vjp(forms.fold, weights, queries)
    np.testing.assert_allclose(value, weights @ queries.T, rtol=1e-5, atol=1e-6)
    of_weights, of_queries = backward(gradient)
    np.testing.assert_allclose(of_weights, gradient @ queries, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_queries, gradient.T @ weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 200.0, -200.0])
def test_the_softmax_beside_zero_is_scipy_s_and_does_not_overflow(gpu_forms, shift):
    logits = random(2, 6) + shift
    expected = softmax(np.vstack([logits, np.zeros((1, 6))]), axis=0)
    np.testing.assert_allclose(forms.softmax_beside_zero(logits), expected, rtol=1e-5, atol=1e-7)
    assert jnp.isfinite(jax.grad(lambda x: jnp.sum(forms.softmax_beside_zero(x)[0]))(logits)).all()


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_half_precision_content_stays_as_it_is_stored_and_loses_nothing(gpu_forms, offset):
    """A common offset of all channels makes the shift matter."""
    delta = jnp.asarray(0.01 * random(6, 40) + 0.01 * offset, jnp.float16)
    exact = layer_norm(unit_scale(delta))
    content = forms.content_of(delta)
    assert content.tokens is delta
    weights, folded, weight = random(2, 6), random(40, 3), random(5, 40)
    np.testing.assert_allclose(content.projected(folded), exact @ folded, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(content.pooled(weights).times(weight), weights @ exact @ weight.T, rtol=1e-4, atol=1e-4)


def test_a_pair_without_change_has_content_zero(gpu_forms):
    content = forms.content_of(jnp.zeros((4, 8), jnp.float16))
    np.testing.assert_array_equal(content.projected(jnp.ones((8, 2))), 0)


def test_float32_content_is_normalised_once_and_for_all(gpu_forms):
    delta = jnp.asarray(random(4, 8))
    assert forms.content_of(delta).scale is None
    np.testing.assert_array_equal(forms.content_of(delta).tokens, layer_norm(unit_scale(delta)))


@pytest.mark.parametrize("readout", [soopf.READOUT, dense.READOUT, bilinear.READOUT, bilinear.POSITIVE])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_a_readout_has_the_energies_masks_and_gradients_of_a_cpu(readout, dtype, request):
    dims = Dims(patches=9, channels=20, supports=3, operations=3)
    params = jax.jit(readout.init, static_argnums=1)(jax.random.key(0), dims)
    source, delta = RNG.standard_normal((2, 9, 20)).astype(dtype)
    pair = PairView(jnp.asarray(source), jnp.asarray(delta))

    def outcome(params):
        prepared = readout.prepare(pair)

        def energy(params):
            output = readout.apply(params, prepared, jnp.float32(0.7))
            return jnp.sum(jnp.log(output.energy)), output

        return jax.grad(energy, has_aux=True)(params)

    expected = jax.jit(lambda params: outcome(params))(params)
    request.getfixturevalue("gpu_forms")
    found = jax.jit(lambda params: outcome(params))(params)  # traced anew
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5), found, expected)


def test_one_gradient_that_is_not_finite_marks_its_fit(gpu_forms):
    small, large = np.zeros((2, 3, 5), np.float32), np.zeros((2, 3, 70, 70), np.float32)
    small[0, 1, 2], large[1, 2, 3, 4] = np.nan, np.inf
    expected = [[True, False, True], [True, True, False]]
    grads = {"small": jnp.asarray(small), "large": jnp.asarray(large), "other": jnp.ones((2, 3, 4))}
    assert program.all_finite(grads).tolist() == expected
