"""Loss terms, each a function of one fit's minibatch, and the objectives: tables of weights over them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from soopf_jax.errors import unknown_name
from soopf_jax.grid import Grid
from soopf_jax.types import ReadoutOutput

LOGIT_SCALE = 10.0
"""Energy shares are at most 1. Without this factor their softmax would stay nearly uniform."""
LOCALISATION_MARGIN = 0.6
"""rho: the share of its energy that a pair should have on the cells assigned to its label."""


class Outcome(NamedTuple):
    """One fit's minibatch after the readout."""

    share: Float[Array, "batch cells"]
    """sh: the energy of each pair, normalised to sum to one."""
    usage: Float[Array, "batch supports"] | None
    """Mean of each pair's masks over its patches; None for a readout without masks."""
    q: Float[Array, "cells cells"]
    """The assignment, one row per cell."""
    cell: Int[Array, " batch"]
    """True cells."""
    observed: Bool[Array, " cells"]
    """False for the held-out cell."""
    grid: Grid

    @property
    def counted(self) -> Float[Array, " batch"]:
        """Weights over the batch that sum to one: equal for pairs of observed cells, zero for the held-out cell's."""
        weight = self.observed[self.cell].astype(jnp.float32)
        return weight / jnp.sum(weight)


class Term(NamedTuple):
    """A loss term and the labels that it reads beyond the flat cell label."""

    loss: Callable[[Outcome], Float[Array, ""]]
    sees: tuple[str, ...] = ()


def normalised_energy(energy: Float[Array, "*rows supports operations"]) -> Float[Array, "*rows cells"]:
    """sh = E / sum_{s,o} E_{s,o}, flattened over the grid; uniform where there is no energy at all, NaN stays NaN."""
    flat = energy.reshape(*energy.shape[:-2], -1)
    total = jnp.sum(flat, axis=-1, keepdims=True)
    return jnp.where(total == 0, 1.0 / flat.shape[-1], flat / jnp.where(total == 0, 1.0, total))


def outcome(
    output: ReadoutOutput,
    q: Float[Array, "cells cells"],
    cell: Int[Array, " batch"],
    held_out: Int[Array, ""],
    grid: Grid,
) -> Outcome:
    """Batched readout outputs, with the labels that the terms need."""
    usage = None if output.masks is None else jnp.mean(output.masks, axis=-1)
    observed = jnp.arange(grid.n_cells) != held_out
    return Outcome(normalised_energy(output.energy), usage, q, cell, observed, grid)


def label_logits(batch: Outcome) -> Float[Array, "batch cells"]:
    """10 sh Q^T, with -inf for the held-out label."""
    return jnp.where(batch.observed, LOGIT_SCALE * batch.share @ batch.q.T, -jnp.inf)


def cell_loss(batch: Outcome) -> Float[Array, ""]:
    """L_cell = CE(10 sh Q^T, y), over the observed labels."""
    log_posterior = jax.nn.log_softmax(label_logits(batch), axis=-1)
    # A pair of the held-out cell has weight 0. Its own label has log-probability -inf, and 0 * -inf is NaN, so another
    # label is read.
    label = jnp.where(batch.observed[batch.cell], batch.cell, jnp.argmax(batch.observed))
    return -jnp.sum(batch.counted * jnp.take_along_axis(log_posterior, label[:, None], axis=-1)[:, 0])


def negative_entropy(p: Float[Array, " values"]) -> Float[Array, ""]:
    """sum_i p_i log p_i, with 0 log 0 = 0."""
    return jnp.sum(p * jnp.log(jnp.maximum(p, jnp.finfo(jnp.float32).tiny)))


def mask_loss(batch: Outcome) -> Float[Array, ""]:
    """L_mask = sum_s u_s log u_s, u = mean support usage: negative entropy, so that no slot stays empty."""
    if batch.usage is None:
        return jnp.float32(0.0)
    return negative_entropy(batch.counted @ batch.usage)


def localisation_loss(batch: Outcome) -> Float[Array, ""]:
    """L_loc = mean of (1 - m) + relu(rho - m), m = the energy share on the cells that Q assigns to the label."""
    mass = jnp.sum(batch.share * batch.q[batch.cell], axis=-1)
    return jnp.sum(batch.counted * (1 - mass + jax.nn.relu(LOCALISATION_MARGIN - mass)))


def column_usage(batch: Outcome) -> Float[Array, "supports operations"]:
    """How much of Q the observed rows put on each grid location, on average."""
    rows = batch.observed.astype(jnp.float32)
    return (rows @ batch.q / jnp.sum(rows)).reshape(batch.grid.n_supports, batch.grid.n_operations)


def balance_loss(batch: Outcome) -> Float[Array, ""]:
    """L_bal = negative entropy of Q's mean column usage: discourages unused grid locations."""
    return negative_entropy(column_usage(batch).ravel())


def axis_loss(batch: Outcome) -> Float[Array, ""]:
    """L_axis = negative entropies of the support and operation marginals of Q's mean column usage, added."""
    usage = column_usage(batch)
    return negative_entropy(jnp.sum(usage, axis=1)) + negative_entropy(jnp.sum(usage, axis=0))


def operation_injectivity_loss(batch: Outcome) -> Float[Array, ""]:
    """L_opinj = mean off-diagonal cosine between the operation-share profiles of the native operations.

    Profile o: the mean operation marginal of the energy shares, over the counted pairs whose native operation is o.
    """
    n = batch.grid.n_operations
    marginal = jnp.sum(batch.share.reshape(-1, batch.grid.n_supports, n), axis=1)
    members = jax.nn.one_hot(batch.grid.axes(batch.cell)[1], n) * batch.counted[:, None]
    profiles = members.T @ marginal  # sums do as well as means: a cosine does not depend on length
    profiles = profiles / jnp.maximum(jnp.linalg.norm(profiles, axis=1, keepdims=True), 1e-12)
    cosines = profiles @ profiles.T
    return (jnp.sum(cosines) - jnp.trace(cosines)) / (n * (n - 1))


def native_loss(batch: Outcome) -> Float[Array, ""]:
    """CE(support) + CE(operation) on native axis labels, the posteriors being the marginals of the energy share."""
    share = batch.share.reshape(-1, batch.grid.n_supports, batch.grid.n_operations)
    support, operation = batch.grid.axes(batch.cell)
    likelihood = [
        jnp.take_along_axis(jnp.sum(share, axis=2), support[:, None], axis=-1)[:, 0],
        jnp.take_along_axis(jnp.sum(share, axis=1), operation[:, None], axis=-1)[:, 0],
    ]
    return -jnp.sum(batch.counted * sum(jnp.log(jnp.maximum(p, 1e-30)) for p in likelihood))


TERMS: Mapping[str, Term] = {
    "cell": Term(cell_loss),
    "mask": Term(mask_loss),
    "loc": Term(localisation_loss),
    "bal": Term(balance_loss),
    "axis": Term(axis_loss),
    "opinj": Term(operation_injectivity_loss, sees=("axes",)),
    "native": Term(native_loss, sees=("axes",)),
}


class Weighted(NamedTuple):
    """A loss term of a plug-in with its weight, as an entry of an objective."""

    weight: float
    term: Term


Objective = Mapping[str, float | Weighted]
"""Weights by the names of TERMS. A plug-in can add its own terms under other names."""
CORE: Objective = {"cell": 1.0, "mask": 1.0}
ENHANCED: Objective = {"cell": 1.0, "loc": 1.0, "bal": 0.1, "axis": 0.5, "mask": 1.0, "opinj": 1.0}
NATIVE: Objective = {"native": 1.0}


def with_weights(objective: Objective, changes: Objective) -> Objective:
    """The objective with some weights replaced.

    Raises:
        UserError: A term is unknown.
    """
    changed = dict(objective)
    for name, entry in changes.items():
        own = changed.get(name)
        if isinstance(own, Weighted) and not isinstance(entry, Weighted):
            entry = own._replace(weight=entry)
        elif not isinstance(entry, Weighted) and name not in TERMS:
            raise unknown_name("loss term", name, {*TERMS, *objective})
        changed[name] = entry
    return changed


def weights_of(objective: Objective) -> dict[str, float]:
    """Every term's weight by name, for the record."""
    return {name: entry.weight if isinstance(entry, Weighted) else entry for name, entry in objective.items()}


def total_loss(objective: Objective, batch: Outcome) -> Float[Array, ""]:
    """The weighted sum of the objective's terms."""
    return sum((w * term.loss(batch) for w, term in _terms(objective)), start=jnp.float32(0.0))


def seen_by(objective: Objective) -> tuple[str, ...]:
    """Labels that the objective's terms read beyond the flat cell label."""
    return tuple(sorted({label for _, term in _terms(objective) for label in term.sees}))


def _terms(objective: Objective) -> list[tuple[float, Term]]:
    """The terms that count, with their weights."""
    found = [e if isinstance(e, Weighted) else Weighted(e, TERMS[name]) for name, e in objective.items()]
    return [(weight, term) for weight, term in found if weight]
