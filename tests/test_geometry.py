"""The geometry of innovations against constructions whose geometry is known, brute force and scikit-learn."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from soopf_jax.features.geometry import (
    LEAST_SHRINKAGE,
    MEANINGS,
    Cells,
    Geometry,
    Sample,
    additive_r2,
    covariance,
    effect_cosine,
    effect_rank,
    effects,
    innovation,
    measure,
    probe,
    read,
    whitened,
)
from soopf_jax.fitting.protocol import OPTIMISATION, UNUSED, VALIDATION, roles
from soopf_jax.grid import Grid
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.report import details
from soopf_jax.studies.outcome import numbers_of
from soopf_jax.types import FeatureTable
from tests.planted import GRID, planted_table, random_table
from tests.report_result import dealt_result

SQUARE = Grid.of("ab", "xy")
WIDE = Grid.of("abc", "wxyz")


def cells_at(means: np.ndarray) -> Cells:
    """Cells whose means are known and need no whitening; [supports, operations, dims]."""
    flat = means.reshape(-1, means.shape[-1])
    return Cells(flat @ flat.T)


def sums(of_support: np.ndarray, of_operation: np.ndarray) -> np.ndarray:
    return of_support[:, None] + of_operation[None]


def split(table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
    role = roles(table.cell, table.grid, seed=0)
    return role == OPTIMISATION, role == VALIDATION


# ------------------------------------------------------------------------------------------------ pair vectors


def test_pair_vectors_are_what_readouts_read():
    delta = np.random.default_rng(0).normal(size=(5, 7)) * np.array([[1], [0.1], [3], [0], [1]]) + 0.2
    for scale in (1.0, 1e-6, 1e6):
        where, what = innovation((scale * delta).astype(np.float32))
        scaled = unit_scale(jnp.asarray(delta))
        np.testing.assert_allclose(where, salience(scaled), rtol=1e-5)
        np.testing.assert_allclose(what, salience(scaled) @ layer_norm(scaled), rtol=1e-4, atol=1e-5)


def test_a_pair_that_does_not_change_has_zero_vectors():
    where, what = innovation(np.zeros((3, 4), np.float16))
    assert not where.any()
    assert not what.any()


# --------------------------------------------------------------------------------------------------- whitening


@pytest.mark.parametrize(("pairs", "dims"), [(400, 12), (12, 30)])
def test_the_covariance_is_that_of_ledoit_and_wolf(pairs, dims):
    residuals = np.random.default_rng(1).normal(size=(pairs, dims)) * np.linspace(1, 4, dims)
    expected, shrinkage = ledoit_wolf(residuals, assume_centered=True)
    assert LEAST_SHRINKAGE < shrinkage < 1
    np.testing.assert_allclose(covariance(residuals), expected, rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(covariance(residuals)).min() > 0.01


def test_a_covariance_is_never_singular():
    line = np.array([[1.0, 1.0], [-1.0, -1.0]] * 4)
    assert ledoit_wolf(line, assume_centered=True)[1] == 0  # all products are the same, so nothing would be shrunk
    assert np.linalg.eigvalsh(covariance(line)) == pytest.approx([LEAST_SHRINKAGE, 2 - LEAST_SHRINKAGE])
    np.testing.assert_array_equal(covariance(np.zeros((4, 3))), np.eye(3))
    np.testing.assert_allclose(covariance(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])), np.eye(2) / 2)


def test_products_of_means_are_mahalanobis():
    """Noise of +e and -e along every axis, of known size, so that means are exact."""
    means = np.random.default_rng(2).normal(size=(4, 3))
    noise = np.concatenate([np.diag([1.0, 2.0, 3.0]), -np.diag([1.0, 2.0, 3.0])])
    pairs = Sample((means[:, None] + noise).reshape(-1, 3), np.repeat(np.arange(4), len(noise)))
    within = ledoit_wolf(np.tile(noise, (4, 1)), assume_centered=True)[0]
    centred = means - means.mean(axis=0)
    found = whitened(pairs, pairs, 4)
    np.testing.assert_allclose(found.products, centred @ np.linalg.inv(within) @ centred.T, rtol=1e-9, atol=1e-12)


def test_products_of_means_have_no_bias_and_the_sampling_error_that_is_told():
    """Cells that are all alike: 20 and 5 pairs of each in 40 dimensions."""
    stream = np.random.default_rng(3)
    label, other = np.repeat(np.arange(9), 20), np.repeat(np.arange(9), 5)
    spreads = np.linspace(1, 2, 40)
    found = [
        whitened(Sample(stream.normal(size=(180, 40)) * spreads, label), Sample(stream.normal(size=(45, 40)), other), 9)
        for _ in range(40)
    ]
    products = np.stack([cells.products for cells in found])
    naive = 40 / 20  # the squared length of a mean of 20 pairs: one over 20 in each of 40 dimensions
    assert abs(np.trace(products, axis1=1, axis2=2).mean() / 9) < 0.05 * naive
    assert found[0].noise == pytest.approx(np.sqrt(40 / (20 * 5)))
    differences = np.eye(9) - 1 / 9
    assert not any(cells.clear(differences) for cells in found)


# -------------------------------------------------------------------------------------------------- additivity


@pytest.mark.parametrize("grid", [SQUARE, GRID, WIDE])
def test_sums_are_additive(grid):
    stream = np.random.default_rng(4)
    means = sums(stream.normal(size=(grid.n_supports, 5)), stream.normal(size=(grid.n_operations, 5)))
    assert additive_r2(cells_at(means), grid) == pytest.approx(1)


def test_exclusive_or_is_not():
    """Each cell is predicted at three times its distance on the wrong side: (3 + 1)^2 / (4 / 3)^2 = 9."""
    exclusive = np.array([[[1.0], [-1.0]], [[-1.0], [1.0]]])
    assert additive_r2(cells_at(exclusive), SQUARE) == pytest.approx(1 - 9)
    beside = sums(np.eye(2, 3), np.eye(2, 3))
    assert 0 < additive_r2(cells_at(beside + 0.1 * exclusive), SQUARE) < 1


@pytest.mark.parametrize("grid", [SQUARE, GRID, WIDE])
def test_one_cell_is_left_out_as_by_hand(grid):
    means = np.random.default_rng(5).normal(size=(grid.n_cells, 6))
    support, operation = grid.axes(np.arange(grid.n_cells))
    design = np.concatenate([np.eye(grid.n_supports)[support], np.eye(grid.n_operations)[operation]], axis=1)
    error = total = 0.0
    for cell in range(grid.n_cells):
        others = np.arange(grid.n_cells) != cell
        fitted = np.linalg.lstsq(design[others], means[others], rcond=None)[0]
        error += np.sum((means[cell] - design[cell] @ fitted) ** 2)
        total += np.sum((means[cell] - means[others].mean(axis=0)) ** 2)
    assert additive_r2(cells_at(means[:, None]), grid) == pytest.approx(1 - error / total)
    residuals = means - design @ np.linalg.lstsq(design, means, rcond=None)[0]
    in_sample = 1 - np.sum(residuals**2) / np.sum((means - means.mean(axis=0)) ** 2)
    k = ((grid.n_cells - 1) / ((grid.n_supports - 1) * (grid.n_operations - 1))) ** 2
    assert 1 - error / total == pytest.approx(1 - k * (1 - in_sample))


def test_few_pairs_in_many_dimensions_do_not_look_less_additive():
    """20 and 5 pairs of each cell in 120 dimensions, and means whose additive R2 is known."""
    stream = np.random.default_rng(7)
    means = sums(stream.normal(size=(3, 120)), stream.normal(size=(3, 120))) + 0.5 * stream.normal(size=(3, 3, 120))
    flat = 0.5 * means.reshape(9, 120)
    label, other = np.repeat(np.arange(9), 20), np.repeat(np.arange(9), 5)
    found, naive = [], []
    for _ in range(6):
        fitted = Sample(flat[label] + stream.normal(size=(180, 120)), label)
        checked = Sample(flat[other] + stream.normal(size=(45, 120)), other)
        found.append(additive_r2(whitened(fitted, checked, 9), GRID))
        naive.append(additive_r2(whitened(fitted, fitted, 9), GRID))
    true = additive_r2(cells_at(flat.reshape(3, 3, 120)), GRID)
    assert np.mean(found) == pytest.approx(true, abs=0.08)
    assert np.mean(naive) < true - 0.15


# --------------------------------------------------------------------------------------------------- directions


def test_cosines_are_as_constructed():
    supports, operations = np.array([[1.0, 0], [-1, 0]]), np.array([[0.6, 0.8], [-0.6, -0.8]])
    by = effects(SQUARE)
    assert effect_cosine(cells_at(sums(supports, operations)), *by) == pytest.approx(0.6)
    assert effect_cosine(cells_at(sums(supports, np.array([[0.0, 7], [0, 9]]))), *by) == pytest.approx(0, abs=1e-12)
    assert effect_cosine(cells_at(sums(supports, 3 * supports)), *by) == pytest.approx(1)


def test_ranks_are_as_constructed():
    line, triangle = np.array([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]]), np.eye(3)
    tetrahedron = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    by_support, by_operation = effects(WIDE)
    for supports, rank in ((line, 1), (triangle, 2)):
        cells = cells_at(sums(supports, tetrahedron))
        assert effect_rank(cells, by_support) == pytest.approx(rank)
        assert effect_rank(cells, by_operation) == pytest.approx(3)


def test_what_has_no_effect_has_no_geometry():
    by_support, by_operation = effects(GRID)
    cells = cells_at(sums(np.eye(3, 5), np.ones((3, 5))))
    assert effect_rank(cells, by_operation) is None
    assert effect_cosine(cells, by_support, by_operation) is None
    assert additive_r2(cells, GRID) == pytest.approx(1)
    assert additive_r2(cells_at(np.ones((3, 3, 5))), GRID) is None


def test_differences_count_only_if_they_stand_out_of_the_sampling_error():
    """One difference of squared length 2, whose error is 2 noise."""
    difference = np.array([[1.0, -1.0]])
    assert Cells(np.eye(2), noise=0.19).clear(difference)
    assert not Cells(np.eye(2), noise=0.21).clear(difference)


# ------------------------------------------------------------------------------------------------------- probes


@pytest.mark.parametrize("dims", [6, 80])
def test_probes_read_what_scikit_learn_reads(dims):
    """Labels of unequal size; more dimensions than pairs in the second case."""
    stream = np.random.default_rng(6)
    label = np.repeat(np.arange(3), (12, 20, 30))
    centres = 0.8 * stream.normal(size=(3, dims)) * np.linspace(0.2, 2, dims) / np.sqrt(dims / 6)
    vectors = centres[label] + stream.normal(size=(62, dims)) * np.linspace(0.2, 2, dims)
    others = centres[np.arange(300) % 3] + stream.normal(size=(300, dims)) * np.linspace(0.2, 2, dims)
    fitted = Sample(vectors, label)
    shrinkage = ledoit_wolf(vectors - fitted.means(3)[label], assume_centered=True)[1]
    judge = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(vectors, label)
    np.testing.assert_array_equal(read(fitted, others, 3), judge.predict(others))
    accuracy = probe(fitted, Sample(others, np.arange(300) % 3), 3)
    assert accuracy == judge.score(others, np.arange(300) % 3)
    assert 0.4 < accuracy < 0.95


# ------------------------------------------------------------------------------------------------------- tables


def crossed_table(pairs_per_cell: int = 30) -> FeatureTable:
    """Where is as in a planted table; the direction of the change is that of support XOR operation."""
    table = planted_table(pairs_per_cell, grid=SQUARE)
    support, operation = SQUARE.axes(table.cell)
    delta = np.zeros_like(table.delta)
    for pair in range(len(delta)):
        delta[pair, np.arange(9) % 2 == support[pair], support[pair] ^ operation[pair]] = 1
    noise = np.random.default_rng(0).normal(size=delta.shape)
    return table._replace(delta=(delta + 0.1 * noise).astype(np.float32))


def test_a_planted_table():
    table = planted_table()
    found = measure(table, *split(table))
    assert found.where_additive_r2 == pytest.approx(1, abs=1e-3)
    assert found.what_additive_r2 == pytest.approx(1, abs=1e-2)
    assert found.effect_cosine is None  # its content says nothing about the support
    assert found.support_rank == pytest.approx(2, abs=0.01)
    assert 1.5 < found.operation_rank < 2
    assert (found.where_probe, found.what_probe) == (1, 1)


def test_a_table_whose_content_is_crossed():
    table = crossed_table()
    found = measure(table, *split(table))
    assert found.where_additive_r2 > 0.98
    assert found.what_additive_r2 == pytest.approx(-8, abs=0.1)
    assert found.where_probe == 1
    assert found.what_probe < 0.8  # only the little that is left of chance in 20 pairs


def test_a_random_table_has_no_geometry():
    table = random_table(40)
    found = measure(table, *split(table))
    assert set(found[:5]) == {None}
    assert 0.1 < found.where_probe < 0.6
    assert 0.1 < found.what_probe < 0.6


def test_pairs_outside_the_split_are_never_looked_at():
    table = planted_table(10)
    unused = roles(table.cell, table.grid, seed=0) == UNUSED
    other = table.delta.copy()
    other[unused] = np.random.default_rng(1).normal(size=other[unused].shape)
    assert unused.sum() == 18
    assert measure(table._replace(delta=other), *split(table)) == measure(table, *split(table))


def noisy_table(seed: int) -> tuple[FeatureTable, np.ndarray, np.ndarray]:
    """A small table in which all numbers of a geometry are defined and none is trivial, and a split of it."""
    table = planted_table(12, patches=6, channels=8, seed=seed, grid=Grid.of("abc", "xy"))
    stream = np.random.default_rng(seed)
    of_cell = 0.6 * stream.normal(size=(6, 6, 8))[table.cell]
    delta = table.delta + of_cell + 0.3 * stream.normal(size=table.delta.shape)
    return table._replace(delta=delta.astype(np.float32)), *split(table)


def same(found: Geometry, expected: Geometry) -> None:
    assert None not in expected
    assert found == pytest.approx(expected, rel=1e-4)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-4, 0.1, 30.0]))
def test_what_does_not_change_a_geometry(seed, scale):
    """The scale of features; the order of pairs, patches and channels; the order of supports and of operations."""
    table, fitted, checked = noisy_table(seed)
    expected, grid = measure(table, fitted, checked), table.grid
    stream = np.random.default_rng(seed)
    same(measure(table._replace(delta=scale * table.delta), fitted, checked), expected)
    pairs, patches, channels = (stream.permutation(n) for n in table.delta.shape)
    moved = table._replace(delta=table.delta[pairs][:, patches][:, :, channels], cell=table.cell[pairs])
    same(measure(moved, fitted[pairs], checked[pairs]), expected)
    support, operation = grid.axes(table.cell)
    renamed = stream.permutation(3)[support] * 2 + stream.permutation(2)[operation]
    same(measure(table._replace(cell=renamed.astype(np.int32)), fitted, checked), expected)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_rotations_of_vectors_change_nothing(seed):
    stream = np.random.default_rng(seed)
    rotation = np.linalg.qr(stream.normal(size=(5, 5)))[0]
    label = np.tile(np.arange(4), 15)
    vectors = stream.normal(size=(4, 5))[label] + stream.normal(size=(60, 5)) * np.arange(1, 6)
    before, after = (Sample(v, label) for v in (vectors, vectors @ rotation))
    np.testing.assert_allclose(
        whitened(after, after, 4).products, whitened(before, before, 4).products, rtol=1e-8, atol=1e-10
    )
    assert probe(after, after, 4) == probe(before, before, 4)


# ------------------------------------------------------------------------------------------------------ results


def test_results_of_before_have_none():
    document = dealt_result().document
    assert details.feature_geometry(document) is None
    assert numbers_of({}) == numbers_of({"statistics": None}) == {}
    assert numbers_of({"statistics": {"delta_rms": 2.0}}) == {"delta_rms": 2.0}


def test_every_number_has_a_meaning():
    assert tuple(MEANINGS) == Geometry._fields
    assert len({label for label, _ in details.FEATURE_TERMS.values()}) == len(details.FEATURE_TERMS)
