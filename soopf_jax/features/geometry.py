"""A table of features in, a few numbers about the geometry of its innovations out.

They say, before any readout is trained, how where and what are laid out in the innovation field, delta. Is the mean of
a cell the sum of a part of its support and a part of its operation? Do the two parts use different directions? Does a
linear probe read them? docs/studies.md says what these numbers can and cannot tell.

A pair has two vectors. Its salience, one number for each patch, is where the encoder sees a change. Its content, the
mean of LN(delta_n) weighted by salience, is what the change is like. A readout reads nothing else of delta, and neither
of the two depends on the encoder's scale. The plain mean of delta would not do: it has lost the places, and the area of
a support multiplies it.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from soopf_jax.features.statistics import DIGITS, PAIRS_AT_ONCE, effective_rank
from soopf_jax.grid import Grid
from soopf_jax.types import FeatureTable

LEAST_SHRINKAGE = 1e-4
"""Keeps a covariance away from singular where the formula of Ledoit and Wolf gives no shrinkage."""
CLEAR = 5.0
"""Differences of cells count if their squared length is this many standard deviations of its sampling error."""


class Geometry(NamedTuple):
    """How the innovations of the cells lie to one another. `MEANINGS` has a label and a sentence for each number."""

    where_additive_r2: float | None
    """`additive_r2` of salience."""
    what_additive_r2: float | None
    """`additive_r2` of content."""
    effect_cosine: float | None
    """`effect_cosine` of content."""
    support_rank: float | None
    """`effect_rank` of the supports' effects on salience."""
    operation_rank: float | None
    """`effect_rank` of the operations' effects on content."""
    where_probe: float
    """`probe` of the support, from salience."""
    what_probe: float
    """`probe` of the operation, from content."""


MEANINGS = {
    "where_additive_r2": (
        "additive R2, where",
        "how well the mean salience of a cell is predicted as the sum of a support part and an operation part, which "
        "are fitted to the other cells: 1 is perfect, 0 is no better than their mean",
    ),
    "what_additive_r2": (
        "additive R2, what",
        "how well the mean content of a cell, LN(delta) weighted by salience, is predicted as the sum of a support "
        "part and an operation part, which are fitted to the other cells: 1 is perfect, 0 is no better than their mean",
    ),
    "effect_cosine": (
        "effect cosine",
        "mean absolute cosine between what a support and what an operation adds to the content: 0 if orthogonal",
    ),
    "support_rank": (
        "support rank",
        "how many directions of salience the supports use, at most one less than supports",
    ),
    "operation_rank": (
        "operation rank",
        "how many directions of content the operations use, at most one less than operations",
    ),
    "where_probe": (
        "where probe",
        "share of validation pairs whose support a linear probe reads from salience; chance is 1 / supports",
    ),
    "what_probe": (
        "what probe",
        "share of validation pairs whose operation a linear probe reads from content; chance is 1 / operations",
    ),
}
"""The numbers of Geometry: how each is called, and what it means."""


class Sample(NamedTuple):
    """Vectors with labels."""

    vectors: Float[np.ndarray, "pairs dims"]
    label: Int[np.ndarray, " pairs"]

    def means(self, n_labels: int) -> Float[np.ndarray, "labels dims"]:
        """The mean vector of every label."""
        members = np.eye(n_labels)[self.label]
        return members.T @ self.vectors / members.sum(axis=0)[:, None]


class Cells(NamedTuple):
    """The mean vectors of all cells, as far as their geometry goes."""

    products: Float[np.ndarray, "cells cells"]
    """G: the inner product of any two."""
    noise: float = 0.0
    """The standard deviation of a product that is due to the choice of pairs."""

    def squared_length(self, combinations: Float[np.ndarray, "combinations cells"]) -> float:
        """tr(K G K^T): the total squared length of some linear combinations K of cells."""
        return float(np.trace(combinations @ self.products @ combinations.T))

    def clear(self, combinations: Float[np.ndarray, "combinations cells"]) -> bool:
        """Whether these combinations are longer than sampling error makes them. The error is noise ||K^T K||."""
        error = self.noise * float(np.linalg.norm(combinations.T @ combinations))
        rounding = 1e-12 * float(np.trace(np.abs(self.products)))
        return self.squared_length(combinations) > max(CLEAR * error, rounding)


def measure(table: FeatureTable, fitted: Bool[np.ndarray, " pairs"], checked: Bool[np.ndarray, " pairs"]) -> Geometry:
    """Read the deltas of a table once, a block of pairs at a time, and compute in float64.

    Args:
        table: The features, in memory or in a store, with one edit per pair.
        fitted: The pairs that covariances, means and probes are computed from. Every cell needs some.
        checked: Other pairs, which the same is checked on. Every cell needs some.
    """
    salience, content = pooled(table)
    support, operation = table.grid.axes(table.cell)

    def halves(vectors: np.ndarray, label: np.ndarray) -> tuple[Sample, Sample]:
        return Sample(vectors[fitted], label[fitted]), Sample(vectors[checked], label[checked])

    n_cells = table.grid.n_cells
    where, what = (whitened(*halves(vectors, table.cell), n_cells) for vectors in (salience, content))
    by_support, by_operation = effects(table.grid)
    found = Geometry(
        where_additive_r2=additive_r2(where, table.grid),
        what_additive_r2=additive_r2(what, table.grid),
        effect_cosine=effect_cosine(what, by_support, by_operation),
        support_rank=effect_rank(where, by_support),
        operation_rank=effect_rank(what, by_operation),
        where_probe=probe(*halves(salience, support), table.grid.n_supports),
        what_probe=probe(*halves(content, operation), table.grid.n_operations),
    )
    return Geometry._make(None if value is None else float(f"{value:.{DIGITS}g}") for value in found)


# ------------------------------------------------------------------------------------------------- pair vectors


def pooled(
    table: FeatureTable,
) -> tuple[Float[np.ndarray, "pairs patches"], Float[np.ndarray, "pairs channels"]]:
    """The salience and the content of every pair."""
    found = [
        innovation(delta)
        for start in range(0, len(table.cell), PAIRS_AT_ONCE)
        for delta in table.delta[start : start + PAIRS_AT_ONCE]
    ]
    salience, content = zip(*found, strict=True)
    return np.stack(salience), np.stack(content)


def innovation(
    delta: Float[np.ndarray, "patches channels"],
) -> tuple[Float[np.ndarray, " patches"], Float[np.ndarray, " channels"]]:
    """sal_n = ||delta_n||^2 / sum_m ||delta_m||^2, and sum_n sal_n LN(delta_n), as `readouts.innovation` defines them.

    Both are zero where nothing changes.
    """
    from soopf_jax.readouts.innovation import LN_EPSILON  # imports JAX, which a reader of MEANINGS does not need

    delta = delta.astype(np.float64)
    squares = np.einsum("nd,nd->n", delta, delta)
    total, n_channels = float(squares.sum()) or 1.0, delta.shape[1]
    salience, mean = squares / total, delta @ np.full(n_channels, 1 / n_channels)
    variance = np.maximum(squares / n_channels - mean**2, 0)
    weight = salience / np.sqrt(variance + LN_EPSILON * total / delta.size)
    return salience, weight @ delta - weight @ mean


# ---------------------------------------------------------------------------------------------- whitened means


def covariance(residuals: Float[np.ndarray, "pairs dims"]) -> Float[np.ndarray, "dims dims"]:
    """(1 - g) S + g m I, in which S = R^T R / n and m is the mean of its diagonal: positive definite for any n.

    The shrinkage g is that of Ledoit and Wolf (2004), and at least LEAST_SHRINKAGE. Residuals that are all zero
    give I.
    """
    n_pairs, n_dims = residuals.shape
    moments = residuals.T @ residuals / n_pairs
    scale, size = float(np.trace(moments)) / n_dims, float(np.sum(moments**2))
    if not scale:
        return np.eye(n_dims)
    spread = size - n_dims * scale**2
    error = (float(np.mean(np.sum(residuals**2, axis=1) ** 2)) - size) / n_pairs
    shrinkage = max(min(error / spread, 1.0) if spread > 0 else 1.0, LEAST_SHRINKAGE)
    return (1 - shrinkage) * moments + shrinkage * scale * np.eye(n_dims)


def whitened(fitted: Sample, checked: Sample, n_cells: int) -> Cells:
    """The geometry of the cells' means where the covariance within cells is the unit.

    G_cd = m_c^T W m'_d, made symmetric. W is the inverse of `covariance` within the cells, m are means over fitted
    pairs and m' means over checked pairs, both from the same origin. The two have independent sampling errors, so G has
    no bias, whereas the products of means with themselves grow with the number of dimensions.
    """
    means, others = fitted.means(n_cells), checked.means(n_cells)
    origin = means.mean(axis=0)
    within = covariance(fitted.vectors - means[fitted.label])
    products = (means - origin) @ scipy.linalg.solve(within, (others - origin).T, assume_a="pos")
    pairs = np.bincount(fitted.label) * np.bincount(checked.label)
    return Cells((products + products.T) / 2, float(np.sqrt(np.mean(means.shape[1] / pairs))))


def effects(
    grid: Grid,
) -> tuple[Float[np.ndarray, "supports cells"], Float[np.ndarray, "operations cells"]]:
    """What makes the effects of supports and of operations out of cells: the mean of a row or column minus that of all.

    The best sum for cells is the mean of all plus these two.
    """
    supports, operations = np.eye(grid.n_supports), np.eye(grid.n_operations)
    by_support = np.kron(supports, np.ones(grid.n_operations) / grid.n_operations)
    by_operation = np.kron(np.ones(grid.n_supports) / grid.n_supports, operations)
    return by_support - 1 / grid.n_cells, by_operation - 1 / grid.n_cells


def additive_r2(cells: Cells, grid: Grid) -> float | None:
    """1 - sum_c |m_c - p_c|^2 / sum_c |m_c - q_c|^2, leaving one cell out; None if cells do not differ.

    p_c is the prediction of the model a_s + b_o, fitted to all other cells by least squares; q_c is the mean of all
    other cells. The error of a cell that is left out is its residual in the fit to all cells, divided by the share of
    itself that this fit leaves to it. On a full grid the result is therefore 1 - k (1 - R2 of the fit to all cells),
    k = ((C - 1) / ((S - 1)(O - 1)))^2, which is 4 for 3 x 3. It is never below 1 - k, apart from sampling error.
    """
    by_support, by_operation = effects(grid)
    constant = np.full((grid.n_cells, grid.n_cells), 1 / grid.n_cells)
    supports, operations = by_support.T @ by_support, by_operation.T @ by_operation
    additive = constant + grid.n_operations * supports + grid.n_supports * operations

    def errors(projector: Float[np.ndarray, "cells cells"]) -> Float[np.ndarray, "cells cells"]:
        return (np.eye(grid.n_cells) - projector) / (1 - np.diag(projector))[:, None]

    if not cells.clear(errors(constant)):
        return None
    return 1 - cells.squared_length(errors(additive)) / cells.squared_length(errors(constant))


def effect_cosine(
    cells: Cells,
    by_support: Float[np.ndarray, "supports cells"],
    by_operation: Float[np.ndarray, "operations cells"],
) -> float | None:
    """The mean over supports and operations of |cos(a_s, b_o)|; None if either has no effect.

    An effect whose squared length is not positive, which sampling error can bring about, has no direction and does not
    count. A value of more than 1 counts as 1.
    """
    if not (cells.clear(by_support) and cells.clear(by_operation)):
        return None
    lengths = [np.einsum("kc,cd,kd->k", k, cells.products, k) for k in (by_support, by_operation)]
    products = (by_support @ cells.products @ by_operation.T)[np.ix_(lengths[0] > 0, lengths[1] > 0)]
    squares = np.outer(*(length[length > 0] for length in lengths))
    return float(np.mean(np.minimum(np.abs(products) / np.sqrt(squares), 1)))


def effect_rank(cells: Cells, effects_of: Float[np.ndarray, "effects cells"]) -> float | None:
    """`effective_rank` of the effects, from 1 to one less than their number; None if there is no effect.

    Eigenvalues below zero are sampling error and count as zero.
    """
    if not cells.clear(effects_of):
        return None
    return effective_rank(effects_of @ cells.products @ effects_of.T)


# ------------------------------------------------------------------------------------------------------ probes


def probe(fitted: Sample, checked: Sample, n_labels: int) -> float:
    """The share of checked pairs whose label is `read` correctly."""
    return float(np.mean(read(fitted, checked.vectors, n_labels) == checked.label))


def read(fitted: Sample, vectors: Float[np.ndarray, "others dims"], n_labels: int) -> Int[np.ndarray, " others"]:
    """The labels that linear discriminant analysis gives to other vectors.

    The label with the largest x^T W m_k - m_k^T W m_k / 2 + log p_k is read. m_k is the mean of a label and p_k its
    share of the fitted pairs; W is the inverse of `covariance` within the labels.
    """
    means = fitted.means(n_labels)
    within = covariance(fitted.vectors - means[fitted.label])
    weights = scipy.linalg.solve(within, means.T, assume_a="pos")
    shares = np.bincount(fitted.label, minlength=n_labels) / len(fitted.label)
    scores = vectors @ weights - np.sum(means.T * weights, axis=0) / 2 + np.log(shares)
    return scores.argmax(axis=1)
