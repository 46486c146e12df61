"""Checks the contract of a readout: call `soopf_jax.testing.check_readout(MY_READOUT)` in your own tests."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from soopf_jax.types import Dims, PairView, Readout, ReadoutOutput

_DIMS = Dims(patches=6, channels=10, supports=3, operations=4)
_PAIRS = 5


def check_readout(readout: Readout, dims: Dims = _DIMS) -> None:
    """Check that a readout keeps its contract.

    Its outputs must have the right shapes. Its energy must be non-negative and finite, even for a pair without any
    change. Every parameter must have a gradient. `apply` must compile once for all pairs and give the same values
    under vmap as in a loop. `prepare` must read no labels except those that `sees` names.

    Args:
        readout: The readout to check.
        dims: The sizes to check it with.

    Raises:
        AssertionError: The readout breaks its contract. The message is one line that says how.
    """
    pairs = _random_pairs(dims, readout.sees)
    params = jax.jit(readout.init, static_argnums=1)(jax.random.key(0), dims)
    tau = jnp.float32(0.7)
    _check_labels(readout, pairs)
    prepared = jax.device_get(jax.jit(jax.vmap(readout.prepare))(pairs))

    traces = []

    @jax.jit
    def apply(params: PyTree, pair: PyTree) -> ReadoutOutput:
        traces.append(1)
        return readout.apply(params, pair, tau)

    alone = [jax.tree.map(lambda leaf, i=i: leaf[i], prepared) for i in range(_PAIRS)]
    one_by_one = [jax.device_get(apply(params, pair)) for pair in alone]
    assert len(traces) == 1, f"apply was compiled {len(traces)} times for {_PAIRS} pairs of one shape"
    loop = jax.tree.map(lambda *leaves: np.stack(leaves), *one_by_one)
    batch = jax.jit(jax.vmap(readout.apply, in_axes=(None, 0, None)))(params, prepared, tau)
    same = jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-4, atol=1e-5), loop, batch)
    assert all(jax.tree.leaves(same)), "vmap over pairs gives other values than a loop"
    _check_output(batch, dims)
    _check_gradients(readout, params, prepared, tau)
    first = jax.tree.map(lambda leaf: leaf[0], pairs)
    unchanged = jax.jit(readout.prepare)(first._replace(delta=np.zeros_like(first.delta)))
    assert np.all(np.isfinite(apply(params, unchanged).energy)), "energy is not finite without change"


def _random_pairs(dims: Dims, sees: tuple[str, ...]) -> PairView:
    stream = np.random.default_rng(0)
    shape = (_PAIRS, dims.patches, dims.channels)
    region = np.eye(dims.supports, dtype=np.float32)[np.arange(_PAIRS * dims.patches) % dims.supports]
    return PairView(
        stream.normal(size=shape).astype(np.float32),
        stream.normal(size=shape).astype(np.float32),
        region.reshape(_PAIRS, dims.patches, dims.supports) if "region" in sees else None,
        np.arange(_PAIRS, dtype=np.int32) % dims.supports if "support" in sees else None,
    )


def _check_labels(readout: Readout, pairs: PairView) -> None:
    """Check that `prepare` reads only the labels that `sees` names. All other labels are None, as in the trainer."""
    assert set(readout.sees) <= {"region", "support"}, f"a readout cannot see {sorted(readout.sees)}"
    try:
        jax.eval_shape(jax.vmap(readout.prepare), pairs)
    except (TypeError, AttributeError, AssertionError) as error:
        raise AssertionError(f"prepare reads what sees = {readout.sees} does not name: {error}") from error


def _check_output(output: ReadoutOutput, dims: Dims) -> None:
    energy, masks = output
    expected = (_PAIRS, dims.supports, dims.operations)
    assert energy.shape == expected, f"energy has shape {energy.shape[1:]}, not (supports, operations) = {expected[1:]}"
    assert np.all(np.isfinite(energy)), "energy is not finite"
    assert np.all(energy >= 0), "energy is negative somewhere"
    if masks is not None:
        expected = (_PAIRS, dims.supports, dims.patches)
        assert masks.shape == expected, f"masks have shape {masks.shape[1:]}, not (supports, patches) = {expected[1:]}"
        assert np.allclose(masks.sum(axis=1), 1, atol=1e-5), "masks do not sum to one over supports"


def _check_gradients(readout: Readout, params: PyTree, prepared: PyTree, tau: jax.Array) -> None:
    """Check that every parameter affects the share of some cell in the energy of some pair."""

    def spread(params: PyTree) -> jax.Array:
        energy = jax.vmap(readout.apply, in_axes=(None, 0, None))(params, prepared, tau).energy
        share = energy / jnp.sum(energy, axis=(1, 2), keepdims=True)
        return jnp.sum(jnp.sin(jnp.arange(share.size).reshape(share.shape)) * jnp.log(share + 1e-6))

    for path, gradient in jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(spread))(params)):
        name = jax.tree_util.keystr(path)
        assert np.all(np.isfinite(gradient)), f"the gradient of {name} is not finite"
        assert np.any(gradient != 0), f"the gradient of {name} is zero: it has no effect on the energy shares"
