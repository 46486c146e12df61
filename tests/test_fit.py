from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.fitting import assignments, objectives
from soopf_jax.fitting import program as fit
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.group import Group, make_group
from soopf_jax.fitting.prepare import dims_of, prepare_table
from soopf_jax.fitting.program import over_seeds
from soopf_jax.fitting.protocol import Protocol, leave_one_cell_out
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.types import Assignment, PairView
from tests.planted import GRID, planted_table, random_table
from tests.programs import make_program

ARMS = {
    name: Arm(READOUT, assignment, objectives.CORE, assignment_name=name)
    for name, assignment in {
        "factorial": assignments.FACTORIAL,
        "learned": assignments.LEARNED,
        "compressed": assignments.COMPRESSED,
    }.items()
}
SHORT = Protocol(seeds=1, restarts=2, steps=25)


def program_of(assignment, protocol, dims):
    return make_program(Arm(READOUT, assignment, objectives.CORE), GRID, dims, protocol)


def train(arm, table, protocol=SHORT, change=lambda group: group, seeds=(0,), bounds=None):
    """Program, final state and group of some seeds."""
    fits = leave_one_cell_out(table.grid, protocol)
    rows = np.stack([np.flatnonzero(fits.seed == seed) for seed in seeds])
    group = change(make_group(table, arm, protocol, fits, rows))
    program = program_of(arm.assignment, protocol, dims_of(table, protocol))
    prepared = prepare_table(table, arm.readout)
    state = program.init(group)
    bounds = bounds or (0, protocol.steps)
    for start, stop in pairwise(bounds):
        state, _ = program.advance(state, prepared, group, start, stop)
    return program, state, group, prepared


def fit_params(state, row):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0, row], state.params)


@pytest.mark.parametrize("name", ARMS)
def test_other_values_in_the_held_out_pairs_leave_every_parameter_bit_identical(name):
    table = random_table()
    held_out = 4
    stream = np.random.default_rng(9)
    source, delta = table.source.copy(), table.delta.copy()
    members = table.cell == held_out
    source[members] = 100 * stream.normal(size=source[members].shape)
    delta[members] = 1e4 * stream.normal(size=delta[members].shape)
    _, state, group, _ = train(ARMS[name], table)
    _, changed, _, _ = train(ARMS[name], table._replace(source=source, delta=delta))
    for row, fold in enumerate(group.held_out[0]):
        same = jax.tree.map(np.array_equal, fit_params(state, row), fit_params(changed, row))
        if fold == held_out:
            assert all(jax.tree.leaves(same))
        else:
            assert not all(jax.tree.leaves(same)), "the change must matter where the cell is observed"


def relabelled(group: Group, cells: np.ndarray, labels: np.ndarray) -> Group:
    """The same fits after cell c is called cells[c] and flat label l is called labels[l]."""
    new = np.empty_like(group.labels)
    new[:, cells] = labels[group.labels]
    return group._replace(held_out=cells[group.held_out].astype(np.int32), labels=new)


def run_relabelled(assignment, cells, labels):
    """Parameters and validation with other cell and label numbers, but the same batches, splits and initial values."""
    table = planted_table(pairs_per_cell=10)
    arm = Arm(READOUT, assignment, objectives.CORE)
    protocol = Protocol(seeds=1, restarts=2, steps=40)
    group = make_group(table, arm, protocol, leave_one_cell_out(GRID, protocol), np.arange(18)[None])
    program = program_of(assignment, protocol, dims_of(table, protocol))
    state = program.init(group)
    rows = np.argsort(labels)
    params = dict(state.params)
    params["assignment"] = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :, rows], state.params["assignment"])
    state = state._replace(params=params)
    group = relabelled(group, cells, labels)
    prepared = prepare_table(table, READOUT)
    prepared = prepared._replace(cell=jnp.asarray(cells[table.cell], jnp.int32))
    state, _ = program.advance(state, prepared, group, 0, protocol.steps)
    stats = program.evaluate(state, prepared, group)
    unpermuted = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :, labels], state.params["assignment"])
    return state.params["readout"], unpermuted, np.asarray(stats.validation)


CELLS = np.array([4, 0, 7, 2, 8, 1, 3, 6, 5])
LABELS = np.array([8, 3, 0, 5, 1, 7, 2, 4, 6])
UNCHANGED = np.arange(9)


def depends_on_names(assignment: Assignment) -> bool:
    """Whether training under this assignment changes when cells and labels are renumbered."""
    before = run_relabelled(assignment, UNCHANGED, UNCHANGED)
    after = run_relabelled(assignment, CELLS, LABELS)
    close = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-4), before, after)
    selected = [np.argmax(validation.reshape(9, 2), axis=1) for *_, validation in (before, after)]
    return not (all(jax.tree.leaves(close)) and np.array_equal(*selected))


def test_learned_q_trains_alike_under_any_renumbering_of_cells_and_labels():
    assert not depends_on_names(assignments.LEARNED)


def test_an_assignment_that_reads_the_grid_from_its_labels_is_caught():
    cheating = assignments.FACTORIAL._replace(sees=())
    assert depends_on_names(cheating)


def test_vmapped_fits_equal_the_same_fits_run_one_by_one():
    table = random_table()
    arm = ARMS["learned"]
    _, together, _, _ = train(arm, table)
    for row in (0, 7, 17):
        only = slice(row, row + 1)
        _, alone, _, _ = train(
            arm, table, change=lambda g, o=only: g._replace(held_out=g.held_out[:, o], restart=g.restart[:, o])
        )
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
            fit_params(together, row),
            fit_params(alone, 0),
        )


def test_seeds_trained_together_equal_seeds_trained_apart():
    table = random_table()
    protocol = Protocol(seeds=2, restarts=1, steps=25)
    _, both, _, _ = train(ARMS["learned"], table, protocol, seeds=(0, 1))
    _, second, _, _ = train(ARMS["learned"], table, protocol, seeds=(1,))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b[0], rtol=2e-4, atol=2e-5),
        *jax.device_get((both.params, second.params)),
    )


def test_chunks_do_not_change_a_bit():
    table = random_table()
    arm = ARMS["learned"]
    _, whole, _, _ = train(arm, table)
    _, chunked, _, _ = train(arm, table, bounds=(0, 3, 10, 25))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, whole.params, chunked.params)))


def test_a_fit_that_leaves_the_numbers_is_frozen_and_the_others_go_on_bit_identically():
    table = random_table()
    arm = ARMS["factorial"]
    program, healthy, group, prepared = train(arm, table)
    state = program.init(group)
    params = jax.tree.map(np.array, state.params)
    for leaf in jax.tree.leaves(params):
        leaf[0, 5] = np.nan
    state = state._replace(params=params)
    state, _ = program.advance(state, prepared, group, 0, SHORT.steps)
    stats = program.evaluate(state, prepared, group)
    assert np.flatnonzero(stats.failed[0]).tolist() == [5]
    for row in (0, 4, 6, 17):
        same = jax.tree.map(np.array_equal, fit_params(state, row), fit_params(healthy, row))
        assert all(jax.tree.leaves(same))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("leaf", ["matrix", "vector", "number"])
def test_one_bad_number_in_the_gradients_of_a_fit_is_seen_there_and_nowhere_else(bad, leaf):
    rng = np.random.default_rng(0)
    shapes = {"matrix": (2, 7, 33, 65), "vector": (2, 7, 5), "number": (2, 7), "nothing": (2, 7, 0)}
    grads = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    assert fit.all_finite(grads).all()
    grads[leaf].reshape(14, -1)[9, -1] = bad
    assert np.flatnonzero(~np.asarray(fit.all_finite(grads))).tolist() == [9]


@pytest.mark.parametrize("factor", [0.1, 10.0, 1e-18, 1e18])
def test_delta_side_quantities_do_not_depend_on_the_scale_of_the_features(factor):
    delta = np.random.default_rng(0).normal(size=(9, 16)).astype(np.float32)
    delta[3:] *= 1e-3
    for quantity in map(jax.jit, (unit_scale, lambda d: layer_norm(unit_scale(d)), lambda d: salience(unit_scale(d)))):
        np.testing.assert_allclose(quantity(jnp.asarray(factor * delta)), quantity(jnp.asarray(delta)), atol=1e-4)


def test_salience_and_layer_norm_against_numpy_in_float64():
    delta = np.random.default_rng(0).normal(size=(5, 8))
    norm = (delta - delta.mean(1, keepdims=True)) / np.sqrt(delta.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer_norm(jnp.asarray(delta, jnp.float32)), norm, atol=1e-5)
    squares = (delta**2).sum(1)
    np.testing.assert_allclose(salience(jnp.asarray(delta, jnp.float32)), squares / squares.sum(), atol=1e-6)


def test_a_pair_without_change_has_uniform_shares_and_finite_gradients():
    pair = PairView(jnp.ones((9, 16)), jnp.zeros((9, 16)))
    params = jax.jit(READOUT.init, static_argnums=1)(jax.random.key(0), dims_of(planted_table(), SHORT))

    def share(params):
        output = READOUT.apply(params, READOUT.prepare(pair), jnp.float32(1.0))
        return objectives.normalised_energy(output.energy)

    value, gradient = jax.jit(lambda params: (share(params), jax.jacobian(share)(params)))(params)
    np.testing.assert_allclose(value, np.full(9, 1 / 9), rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_seed_alone_is_computed_as_among_others(seeds):
    x, y = np.random.default_rng(0).standard_normal((2, seeds, 4, 5))

    def function(x, y, scale):
        return x @ y.T * scale, {"sum": x.sum()}

    found = over_seeds(function, (0, 0, None))(x, y, 2.0)
    expected = [function(*row, 2.0) for row in zip(x, y, strict=True)]
    np.testing.assert_allclose(found[0], [product for product, _ in expected], rtol=1e-5)
    np.testing.assert_allclose(found[1]["sum"], [rest["sum"] for _, rest in expected], rtol=1e-5)
