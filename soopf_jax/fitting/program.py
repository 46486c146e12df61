"""The programs that train and evaluate every fit of an arm at once.

In: an arm (readout, assignment, objective), the prepared table and the seeds of a group. Out: FitStats. Readouts are
written for one pair and one fit; here they are vmapped over the pairs of a minibatch, over the K fits of a seed, which
share that minibatch, and over the G seeds of a group.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from soopf_jax.fitting import objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.blocks import in_blocks
from soopf_jax.fitting.compiled import program
from soopf_jax.fitting.devices import BY_FIT, EVERYWHERE
from soopf_jax.fitting.group import LAYOUT_OF_GROUP, Group
from soopf_jax.fitting.prepare import PAIRS_AT_ONCE, PreparedTable
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.stats import FitOutcome, FitStats, fit_stats
from soopf_jax.grid import Grid
from soopf_jax.runtime.platforms import CPU, platform
from soopf_jax.types import AnyArray, Dims

SMALL = 4096
"""A gradient of fewer numbers costs a GPU more to launch than to read."""


class Training(NamedTuple):
    """What decides the programs: the arm and how it is trained, but no data."""

    arm: Arm
    grid: Grid
    dims: Dims
    protocol: Protocol
    mesh: Mesh

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, as the paper has it."""
        return optax.adam(self.protocol.learning_rate, b1=0.9, b2=0.999, eps=1e-8)

    @property
    def precision(self) -> AbstractContextManager[Any]:
        """The precision of every product that is traced in this context."""
        return jax.default_matmul_precision(self.protocol.matmul_precision)


class FitState(NamedTuple):
    """All that changes during training; every leaf but the step counter starts with (seeds, fits)."""

    params: PyTree
    optimiser: PyTree
    alive: Bool[Array, "seeds fits"]
    """False from the first non-finite loss or gradient on: that fit is frozen, the others go on undisturbed."""


_of_adam: Any = (optax.ScaleByAdamState(EVERYWHERE, BY_FIT, BY_FIT), optax.EmptyState())
LAYOUT_OF_STATE: Any = FitState._make([BY_FIT, _of_adam, BY_FIT])
"""How the state of a group lies on the mesh: all but Adam's count of steps by fit."""


# ------------------------------------------------------------------------------------------------- the programs


@program(LAYOUT_OF_GROUP, gives=LAYOUT_OF_STATE, once=True)
def init(spec: Training, group: Group) -> FitState:
    """The state of a group's fits before the first step."""
    fits_of_seed = jax.vmap(partial(init_fit, spec), in_axes=(None, 0, 0, 0))
    params = jax.vmap(fits_of_seed)(group.seed, group.held_out, group.restart, group.placement)
    return FitState(params, spec.optimiser.init(params), jnp.ones(group.held_out.shape, bool))


@program(
    LAYOUT_OF_STATE, EVERYWHERE, LAYOUT_OF_GROUP, EVERYWHERE, EVERYWHERE,
    gives=(LAYOUT_OF_STATE, BY_FIT), donate_argnums=1,
)  # fmt: skip
def advance(
    spec: Training, state: FitState, table: PreparedTable, group: Group, start: Int[Array, ""], stop: Int[Array, ""]
) -> tuple[FitState, Float[Array, "seeds fits"]]:
    """Train from step `start` to before `stop`; also the mean loss over these steps."""

    def body(step: AnyArray, carry: tuple[FitState, Array]) -> tuple[FitState, Array]:
        state, total = carry
        state, losses = train_step(spec, state, table, group, step)
        return state, total + losses

    with spec.precision:
        state, total = jax.lax.fori_loop(start, stop, body, (state, jnp.zeros(group.held_out.shape)))
    return state, total / (stop - start)


@program(LAYOUT_OF_STATE, EVERYWHERE, LAYOUT_OF_GROUP, gives=BY_FIT)
def evaluate(spec: Training, state: FitState, table: PreparedTable, group: Group) -> FitStats:
    """Statistics of trained fits, with (seeds, fits) in front."""
    evaluate_seeds = jax.vmap(partial(evaluate_seed, spec), in_axes=(0, 0, None, 0, 0, 0))
    with spec.precision:
        return evaluate_seeds(state.params, state.alive, table, group.role, group.held_out, group.labels)


@program(LAYOUT_OF_STATE, EVERYWHERE, gives=BY_FIT)
def energies(spec: Training, state: FitState, table: PreparedTable) -> Float[Array, "seeds fits pairs cells"]:
    """Normalised energies of all pairs of any table."""
    with spec.precision:
        by_pair, _ = jax.vmap(partial(seed_energies, spec), in_axes=(0, None))(state.params, table)
    return jnp.swapaxes(by_pair, 1, 2)


# ------------------------------------------------------------------------------------------------- of one fit


def init_fit(
    spec: Training, seed: AnyArray, held_out: AnyArray, restart: AnyArray, placement: AnyArray | None = None
) -> PyTree:
    """Parameters depend on (seed, held-out cell, restart) only: arms are compared on common random numbers.

    Where the grid was decided before training, the placement takes the place of the assignment's own parameters.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), held_out + 1), restart)
    if placement is None:
        logits = spec.arm.assignment.init(jax.random.fold_in(key, 1), spec.grid)
        assignment = jax.tree.map(lambda leaf: spec.protocol.q_scale * leaf, logits)
    else:
        assignment = {"q": jax.nn.one_hot(placement, spec.grid.n_cells)}
    return {"readout": spec.arm.readout.init(jax.random.fold_in(key, 0), spec.dims), "assignment": assignment}


def assignment_matrix(
    spec: Training, params: PyTree, held_out: AnyArray, labels: AnyArray
) -> Float[Array, "cells cells"]:
    """Q with its rows in the order of the cells; the assignment itself meets flat labels only."""
    held_out_label = jnp.where(held_out >= 0, labels[held_out], -1)
    return spec.arm.assignment.matrix(params["assignment"], held_out_label, spec.grid)[labels]


def fit_loss(
    spec: Training, params: PyTree, batch: PreparedTable, held_out: AnyArray, labels: AnyArray, tau: AnyArray
) -> Float[Array, ""]:
    """The objective of one fit on one minibatch."""
    output = jax.vmap(spec.arm.readout.apply, in_axes=(None, 0, None))(params["readout"], batch.inputs, tau)
    q = assignment_matrix(spec, params, held_out, labels)
    return objectives.total_loss(spec.arm.objective, objectives.outcome(output, q, batch.cell, held_out, spec.grid))


# -------------------------------------------------------------------------------- of the fits of one seed and more


def train_step(
    spec: Training, state: FitState, table: PreparedTable, group: Group, step: AnyArray
) -> tuple[FitState, Float[Array, "seeds fits"]]:
    """One step of Adam for every fit of the group, and their losses before it."""
    assert group.batches is not None
    tau = replace(spec.protocol, steps=group.batches.shape[1]).tau(step)
    gradients = over_seeds(partial(seed_gradient, spec), in_axes=(0, None, 0, 0, 0, None))
    grads, losses = gradients(state.params, table, group.batches[:, step], group.held_out, group.labels, tau)
    alive = state.alive & jnp.isfinite(losses) & all_finite(grads)
    if platform() != CPU:  # all that Adam writes then depends on the same flags, and XLA writes it in one pass
        grads = jax.tree.map(lambda grad: jnp.where(_over(alive, grad), grad, 0.0), grads)
    updates, optimiser_state = spec.optimiser.update(grads, state.optimiser)
    params = jax.tree.map(lambda old, update: jnp.where(_over(alive, old), old + update, old), state.params, updates)
    return FitState(params, optimiser_state, alive), losses


def seed_gradient(
    spec: Training,
    params: PyTree,
    table: PreparedTable,
    batch: Int[Array, " batch"],
    held_out: Int[Array, " fits"],
    labels: Int[Array, " cells"],
    tau: AnyArray,
) -> tuple[PyTree, Float[Array, " fits"]]:
    """Gradients and losses of the K fits of one seed, on the minibatch that they share."""
    rows = jax.tree.map(lambda column: column[batch], table)

    def summed_loss(params: PyTree) -> tuple[Array, Array]:
        losses = jax.vmap(partial(fit_loss, spec), in_axes=(0, None, 0, None, None))(
            params, rows, held_out, labels, tau
        )
        return jnp.sum(losses), losses

    return jax.grad(summed_loss, has_aux=True)(params)


def seed_energies(
    spec: Training, params: PyTree, table: PreparedTable
) -> tuple[Float[Array, "pairs fits cells"], Float[Array, "pairs fits"]]:
    """Normalised energies of all pairs, and their sums before that, for the K fits of one seed.

    A block of pairs is in memory at a time.
    """

    def energy_of(pair: PyTree) -> tuple[Array, Array]:
        output = jax.vmap(spec.arm.readout.apply, in_axes=(0, None, None))(
            params["readout"], pair, jnp.float32(spec.protocol.tau_end)
        )
        return objectives.normalised_energy(output.energy), jnp.sum(output.energy, axis=(1, 2))

    def energy_of_block(rows: Int[Array, " size"]) -> tuple[Array, Array]:
        return jax.vmap(energy_of)(jax.tree.map(lambda column: column[rows], table.inputs))

    n_pairs = len(table.cell)
    found = jax.lax.map(energy_of_block, in_blocks(n_pairs, PAIRS_AT_ONCE).row)
    return jax.tree.map(lambda values: values.reshape(-1, *values.shape[2:])[:n_pairs], found)


def evaluate_seed(
    spec: Training,
    params: PyTree,
    alive: Bool[Array, " fits"],
    table: PreparedTable,
    role: Int[Array, " pairs"],
    held_out: Int[Array, " fits"],
    labels: Int[Array, " cells"],
) -> FitStats:
    """The statistics of the K fits of one seed."""
    share, total = seed_energies(spec, params, table)
    if spec.arm.readout.quadratic:
        total = total * table.change[:, None]
    first = jnp.argmax(table.cell[None, :] == held_out[:, None], axis=1)
    examples = jax.tree.map(lambda column: column[first], table.inputs)
    masks = jax.vmap(spec.arm.readout.apply, in_axes=(0, 0, None))(
        params["readout"], examples, jnp.float32(spec.protocol.tau_end)
    ).masks
    q = jax.vmap(partial(assignment_matrix, spec), in_axes=(0, 0, None))(params, held_out, labels)
    fits = FitOutcome(jnp.swapaxes(share, 0, 1), total.T, q, held_out, alive, masks)

    def of_fit(fit: FitOutcome) -> FitStats:
        return fit_stats(fit, table.cell, role, spec.grid, spec.arm.assignment.selector, spec.protocol.alignment)

    return jax.vmap(of_fit)(fits)


def over_seeds(function: Callable[..., Any], in_axes: Sequence[int | None]) -> Callable[..., Any]:
    """Like `jax.vmap`, but if there is only one seed, it is computed without the axis of seeds.

    XLA lets a product read a transposed operand in place, but not through the reshape that such an axis brings.
    """

    def mapped(*args: Any) -> Any:
        if jax.tree.leaves(args[0])[0].shape[0] > 1:
            return jax.vmap(function, in_axes)(*args)
        alone = [
            arg if axis is None else jax.tree.map(lambda leaf: leaf[0], arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: leaf[None], function(*alone))

    return mapped


def all_finite(grads: PyTree) -> Bool[Array, "seeds fits"]:
    """Whether every gradient of a fit is finite.

    A sum of numbers is finite only if each of them is. On a CPU the sum is taken as a product with ones, which takes a
    sixth of the time of XLA's reduction. On a GPU the reduction is fused into what computes a large gradient, and all
    small ones are reduced together.
    """
    leaves = [g.reshape(*g.shape[:2], -1) for g in jax.tree.leaves(grads)]
    if platform() == CPU:
        return jnp.isfinite(jnp.stack([g @ jnp.ones(g.shape[2]) for g in leaves])).all(axis=0)
    small = [g for g in leaves if g.shape[2] < SMALL]
    together = [jnp.concatenate(small, axis=2)] if small else []
    sums = [jnp.sum(g, axis=2) for g in (*together, *(g for g in leaves if g.shape[2] >= SMALL))]
    return jnp.isfinite(jnp.stack(sums)).all(axis=0)


def _over(flags: Bool[Array, "seeds fits"], leaf: Array) -> Bool[Array, "..."]:
    """Flags of fits, shaped to broadcast over a leaf of their parameters."""
    return flags.reshape(*flags.shape, *(1,) * (leaf.ndim - 2))
