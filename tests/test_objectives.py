import jax
import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.errors import UserError
from soopf_jax.fitting import assignments, objectives
from soopf_jax.types import ReadoutOutput
from tests.planted import GRID


def outcome(energy, q=None, cell=(0,), held_out=8, masks=None):
    q = jnp.eye(9) if q is None else q
    output = ReadoutOutput(jnp.asarray(energy, jnp.float32), masks)
    return objectives.outcome(output, q, jnp.asarray(cell, jnp.int32), jnp.int32(held_out), GRID)


def test_normalised_energy_sums_to_one_and_is_uniform_without_energy():
    energy = jnp.stack([jnp.arange(9.0).reshape(3, 3), jnp.zeros((3, 3))])
    share = objectives.normalised_energy(energy)
    np.testing.assert_allclose(share[0], np.arange(9) / 36, rtol=1e-6)
    np.testing.assert_allclose(share[1], np.full(9, 1 / 9), rtol=1e-6)
    gradient = jax.grad(lambda e: objectives.normalised_energy(e)[0])(jnp.zeros((3, 3)))
    assert np.all(np.isfinite(gradient))


def test_cell_loss_by_hand():
    """All energy on cell 0 of 8 observed: logits (10, 0, ..., 0), so CE = log(1 + 7 e^-10)."""
    energy = np.zeros((1, 3, 3))
    energy[0, 0, 0] = 3.0
    assert objectives.cell_loss(outcome(energy)) == pytest.approx(np.log1p(7 * np.exp(-10)), rel=1e-3)


def test_pairs_of_the_held_out_cell_do_not_count():
    energy = np.random.default_rng(0).random((3, 3, 3))
    both = outcome(energy, cell=(0, 5, 5), held_out=5)
    alone = outcome(energy[:1], cell=(0,), held_out=5)
    assert objectives.cell_loss(both) == pytest.approx(float(objectives.cell_loss(alone)), rel=1e-6)
    assert both.counted.tolist() == [1.0, 0.0, 0.0]


def test_mask_loss_by_hand():
    """Two pairs with usage (1, 0, 0) and (0, 1, 0): u = (1/2, 1/2, 0), so L_mask = -log 2; a third does not count."""
    masks = jnp.stack([jnp.tile(jnp.eye(3)[s][:, None], 4) for s in (0, 1, 2)])
    batch = outcome(np.ones((3, 3, 3)), cell=(0, 1, 8), masks=masks)
    assert objectives.mask_loss(batch) == pytest.approx(-np.log(2), rel=1e-6)


def test_mask_loss_is_lowest_for_equal_usage_and_zero_without_masks():
    equal = outcome(np.ones((1, 3, 3)), masks=jnp.full((1, 3, 4), 1 / 3))
    assert objectives.mask_loss(equal) == pytest.approx(-np.log(3), rel=1e-6)
    assert objectives.mask_loss(outcome(np.ones((1, 3, 3)))) == 0.0


def test_localisation_loss_by_hand():
    """Uniform shares, Q = I: m = 1/9, so (1 - 1/9) + (0.6 - 1/9); all energy in the assigned cell costs nothing."""
    assert objectives.localisation_loss(outcome(np.ones((1, 3, 3)))) == pytest.approx(8 / 9 + 0.6 - 1 / 9, rel=1e-6)
    energy = np.zeros((1, 3, 3))
    energy[0, 0, 0] = 5.0
    assert objectives.localisation_loss(outcome(energy)) == pytest.approx(0.0, abs=1e-6)


def test_localisation_mass_is_weighted_by_q():
    """Half of label 0's row on each of two cells that hold 0.3 and 0.5 of the energy: m = 0.4."""
    q = jnp.eye(9).at[0].set(jnp.array([0.5, 0.5, 0, 0, 0, 0, 0, 0, 0]))
    energy = np.array([[[0.3, 0.5, 0.2], [0, 0, 0], [0, 0, 0]]])
    assert objectives.localisation_loss(outcome(energy, q)) == pytest.approx(0.6 + 0.2, rel=1e-5)


def test_balance_and_axis_losses_by_hand():
    """Eight observed one-hot rows, cell 8 held out: column usage 1/8 each; axis marginals (3/8, 3/8, 2/8) twice."""
    batch = outcome(np.ones((1, 3, 3)), held_out=8)
    assert objectives.balance_loss(batch) == pytest.approx(-np.log(8), rel=1e-6)
    axis = 2 * (2 * 0.375 * np.log(0.375) + 0.25 * np.log(0.25))
    assert objectives.axis_loss(batch) == pytest.approx(axis, rel=1e-6)


def test_operation_injectivity_by_hand():
    """Native operations 0 and 1 both in slot 0, operation 2 in slot 2: cosines 1, 0, 0, so a mean of 1/3."""
    energy = np.zeros((4, 3, 3))
    energy[0, 0, 0] = energy[1, 0, 0] = energy[2, 0, 2] = 1.0
    energy[3, 2, 1] = 1.0  # of the held-out cell: must not count
    batch = outcome(energy, cell=(0, 1, 2, 8), held_out=8)
    assert objectives.operation_injectivity_loss(batch) == pytest.approx(1 / 3, abs=1e-6)


def test_native_loss_by_hand():
    """Uniform shares: log 3 for the support and log 3 for the operation; a certain right answer costs nothing."""
    assert objectives.native_loss(outcome(np.ones((1, 3, 3)))) == pytest.approx(2 * np.log(3), rel=1e-6)
    energy = np.zeros((1, 3, 3))
    energy[0, 0, 0] = 1.0
    assert objectives.native_loss(outcome(energy)) == pytest.approx(0.0, abs=1e-6)


def test_the_paper_s_weights():
    assert objectives.CORE == {"cell": 1.0, "mask": 1.0}
    assert objectives.ENHANCED == {"cell": 1.0, "loc": 1.0, "bal": 0.1, "axis": 0.5, "mask": 1.0, "opinj": 1.0}
    assert objectives.seen_by(objectives.CORE) == ()
    assert objectives.seen_by(objectives.ENHANCED) == ("axes",)
    assert objectives.seen_by({**objectives.ENHANCED, "opinj": 0.0}) == ()


def test_total_loss_is_the_weighted_sum_of_its_terms():
    batch = outcome(np.random.default_rng(0).random((2, 3, 3)), cell=(0, 1), masks=jnp.full((2, 3, 4), 1 / 3))
    total = objectives.total_loss({"cell": 2.0, "mask": 0.5}, batch)
    assert total == pytest.approx(2 * float(objectives.cell_loss(batch)) + 0.5 * float(objectives.mask_loss(batch)))


def test_unknown_terms_are_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'mask'"):
        objectives.with_weights(objectives.CORE, {"mask_": 1.0})


@pytest.mark.parametrize("held_out", range(-1, 9))
def test_compressed_maps_the_i_th_observed_label_to_column_i(held_out):
    q = np.asarray(assignments.COMPRESSED.matrix({}, jnp.int32(held_out), GRID))
    observed = [label for label in range(9) if label != held_out]
    assert [int(np.argmax(q[label])) for label in observed] == list(range(len(observed)))
    np.testing.assert_array_equal(q.sum(axis=1), np.ones(9))


def test_learned_rows_are_stochastic_and_start_near_uniform():
    params = assignments.LEARNED.init(jax.random.key(0), GRID)
    q = np.asarray(assignments.LEARNED.matrix(params, jnp.int32(0), GRID))
    np.testing.assert_allclose(q.sum(axis=1), np.ones(9), rtol=1e-6)
    assert np.abs(q - 1 / 9).max() < 0.06
    assert params["logits"].std() == pytest.approx(0.1, rel=0.25)
