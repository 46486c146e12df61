"""The one jitted program that trains every fit of an arm at once.

In: an arm (readout, assignment, objective), the prepared table and the seeds of a group. Out: FitStats, small and on
the host. Readouts are written for one pair and one fit; here they are vmapped over the pairs of a minibatch, over the K
fits of a seed, which share that minibatch, and over the G seeds of a group.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Int, PyTree

from soopf_jax import objectives
from soopf_jax.devices import BY_FIT, BY_SEED, EVERYWHERE, mesh_for, put
from soopf_jax.grid import Grid
from soopf_jax.objectives import Objective
from soopf_jax.protocol import (
    OPTIMISATION,
    VALIDATION,
    Fits,
    Protocol,
    flat_labels,
    minibatches,
    roles,
)
from soopf_jax.types import AnyArray, Assignment, Dims, FeatureTable, PairView, Readout

EVALUATION_BLOCK = 64
"""Pairs whose energies are computed at a time after training."""


class Arm(NamedTuple):
    """One row of a results table: what is trained, and under which names it is reported."""

    readout: Readout
    assignment: Assignment
    objective: Objective
    readout_name: str = "soopf"
    assignment_name: str = "factorial"
    objective_name: str = "core"

    @property
    def sees(self) -> tuple[str, ...]:
        """Every label that some part of the arm reads beyond flat cell labels."""
        seen = {*self.readout.sees, *self.assignment.sees, *objectives.seen_by(self.objective)}
        return tuple(sorted(seen))


class PreparedTable(NamedTuple):
    """The table as the fits read it, on the device."""

    inputs: PyTree
    """What the readout's `prepare` made of every pair."""
    changed: Bool[Array, " pairs"]
    """False where the encoder does not see the edit at all."""
    cell: Int[Array, " pairs"]


class Group(NamedTuple):
    """G seeds with K fits each: one call of the program."""

    held_out: Int[AnyArray, "seeds fits"]
    """-1 where all cells are observed."""
    restart: Int[AnyArray, "seeds fits"]
    seed: Int[AnyArray, " seeds"]
    labels: Int[AnyArray, "seeds cells"]
    """The flat label under which the assignment meets each cell."""
    batches: Int[AnyArray, "seeds steps batch"]
    role: Int[AnyArray, "seeds pairs"]


GROUP_SPECS = Group(BY_FIT, BY_FIT, BY_SEED, BY_SEED, BY_SEED, BY_SEED)
"""How a group lies on the mesh."""


class FitState(NamedTuple):
    """All that changes during training; every leaf but the step counter starts with (seeds, fits)."""

    params: PyTree
    optimiser: PyTree
    alive: Bool[Array, "seeds fits"]
    """False from the first non-finite loss or gradient on: that fit is frozen, the others go on undisturbed."""


class FitStats(NamedTuple):
    """What leaves the device: enough for every score. One row per fit."""

    validation: Float[AnyArray, " fits"]
    """Share of validation pairs that the arm's selector counts as correct."""
    c_sup: Float[AnyArray, "fits supports supports"]
    """Mean support marginal of the normalised energy, by true support, over optimisation pairs of observed cells."""
    c_op: Float[AnyArray, "fits operations operations"]
    """The same for operations."""
    q: Float[AnyArray, "fits cells cells"]
    """The assignment, rows in the order of the cells."""
    test_counts: Int[AnyArray, "fits cells"]
    """How many held-out pairs have their largest energy at each slot."""
    failed: Bool[AnyArray, " fits"]
    example_energy: Float[AnyArray, "fits cells"] | None = None
    """Normalised energy of one pair of the held-out cell, the first, for the report's examples."""
    example_masks: Float[AnyArray, "fits supports patches"] | None = None
    """The router's masks of that pair."""


class Program(NamedTuple):
    """Jitted functions, each compiled once per arm."""

    init: Callable[[Group], FitState]
    advance: Callable[[FitState, PreparedTable, Group, int, int], tuple[FitState, Float[Array, "seeds fits"]]]
    """Train from step `start` to before `stop`; also the mean loss over these steps."""
    evaluate: Callable[[FitState, PreparedTable, Group], FitStats]
    """Statistics with (seeds, fits) in front, on the device."""
    energies: Callable[[FitState, PreparedTable], Float[Array, "seeds fits pairs cells"]]
    """Normalised energies of all pairs of any table."""


def prepare_table(
    table: FeatureTable, readout: Readout, source_scale: float = 1.0, mesh: Mesh | None = None
) -> PreparedTable:
    """Run the readout's `prepare` once over all pairs, giving it only what its `sees` names; on every device."""
    support = table.grid.axes(table.cell)[0].astype(np.int32)
    views = PairView(
        table.source,
        table.delta,
        table.region if "region" in readout.sees else None,
        support if "support" in readout.sees else None,
    )
    n_pairs = len(table.cell)
    mesh = mesh or mesh_for(1, 1)
    everywhere = NamedSharding(mesh, EVERYWHERE)

    def block(start: int) -> PairView:
        return jax.tree.map(lambda column: column[start : start + EVALUATION_BLOCK], views)

    def prepare_pair(pair: PairView) -> tuple[PyTree, Array]:
        scaled = pair if source_scale == 1 else pair._replace(source=source_scale * pair.source)
        return readout.prepare(scaled), jnp.any(pair.delta != 0)

    prepare = jax.jit(jax.vmap(prepare_pair), in_shardings=everywhere, out_shardings=everywhere)

    @partial(jax.jit, donate_argnums=0, out_shardings=everywhere)
    def place(prepared: PyTree, rows: PyTree, start: AnyArray) -> PyTree:
        return jax.tree.map(lambda all_, new: jax.lax.dynamic_update_slice_in_dim(all_, new, start, 0), prepared, rows)

    # Block by block into place: beside what the fits need, no more than a block is ever in memory.
    shapes = jax.eval_shape(prepare, block(0))

    @partial(jax.jit, out_shardings=everywhere)
    def empty() -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((n_pairs, *leaf.shape[1:]), leaf.dtype), shapes)

    prepared = empty()
    for start in range(0, n_pairs, EVALUATION_BLOCK):
        prepared = place(prepared, prepare(block(start)), start)
        jax.block_until_ready(prepared)  # or all blocks would queue up in memory
    inputs, changed = prepared
    return PreparedTable(inputs, changed, put(table.cell.astype(np.int32), mesh, EVERYWHERE))


def make_group(
    table: FeatureTable, arm: Arm, protocol: Protocol, fits: Fits, rows: Int[np.ndarray, "seeds fits"]
) -> Group:
    """The fits at these rows of `fits`, a row of them for each seed, with their splits and minibatches."""
    cell, grid = table.cell, table.grid
    seeds = fits.seed[rows[:, 0]]
    role = {seed: roles(cell, grid, seed) for seed in set(seeds.tolist())}
    batches = {seed: minibatches(cell, role[seed], grid, seed, protocol.steps, protocol.batch_size) for seed in role}
    return Group(
        held_out=fits.held_out[rows],
        restart=fits.restart[rows],
        seed=seeds,
        labels=np.stack([flat_labels(grid, seed, arm.assignment.sees) for seed in seeds.tolist()]),
        batches=np.stack([batches[seed] for seed in seeds.tolist()]),
        role=np.stack([role[seed] for seed in seeds.tolist()]),
    )


def dims_of(table: FeatureTable, protocol: Protocol) -> Dims:
    """The sizes of a readout for this table."""
    _, patches, channels = table.source.shape
    grid = table.grid
    return Dims(patches, channels, grid.n_supports, grid.n_operations, protocol.router_width, protocol.hidden)


def make_program(arm: Arm, grid: Grid, dims: Dims, protocol: Protocol, mesh: Mesh | None = None) -> Program:
    """The arm's training and evaluation, jitted; fits are spread over the mesh, by default that of all devices."""
    mesh = mesh or mesh_for(protocol.seeds, grid.n_cells * protocol.restarts)
    optimiser = optax.adam(protocol.learning_rate, b1=0.9, b2=0.999, eps=1e-8)

    def init_fit(seed: AnyArray, held_out: AnyArray, restart: AnyArray) -> PyTree:
        """Parameters depend on (seed, held-out cell, restart) only: arms are compared on common random numbers."""
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), held_out + 1), restart)
        logits = arm.assignment.init(jax.random.fold_in(key, 1), grid)
        return {
            "readout": arm.readout.init(jax.random.fold_in(key, 0), dims),
            "assignment": jax.tree.map(lambda leaf: protocol.q_scale * leaf, logits),
        }

    def assignment_matrix(params: PyTree, held_out: AnyArray, labels: AnyArray) -> Array:
        """Q with its rows in the order of the cells; the assignment itself meets flat labels only."""
        held_out_label = jnp.where(held_out >= 0, labels[held_out], -1)
        return arm.assignment.matrix(params["assignment"], held_out_label, grid)[labels]

    def fit_loss(
        params: PyTree, batch: PyTree, cell: AnyArray, held_out: AnyArray, labels: AnyArray, tau: AnyArray
    ) -> Array:
        output = jax.vmap(arm.readout.apply, in_axes=(None, 0, None))(params["readout"], batch, tau)
        q = assignment_matrix(params, held_out, labels)
        return objectives.total_loss(arm.objective, objectives.outcome(output, q, cell, held_out, grid))

    def seed_gradient(
        params: PyTree, table: PreparedTable, batch: AnyArray, held_out: AnyArray, labels: AnyArray, tau: AnyArray
    ) -> tuple[PyTree, Array]:
        """Gradients and losses of the K fits of one seed, on the minibatch that they share."""
        rows = jax.tree.map(lambda column: column[batch], table)

        def summed_loss(params: PyTree) -> tuple[Array, Array]:
            losses = jax.vmap(fit_loss, in_axes=(0, None, None, 0, None, None))(
                params, rows.inputs, rows.cell, held_out, labels, tau
            )
            return jnp.sum(losses), losses

        return jax.grad(summed_loss, has_aux=True)(params)

    def train_step(state: FitState, table: PreparedTable, group: Group, step: AnyArray) -> tuple[FitState, Array]:
        grads, losses = over_seeds(seed_gradient, in_axes=(0, None, 0, 0, 0, None))(
            state.params, table, group.batches[:, step], group.held_out, group.labels, protocol.tau(step)
        )
        updates, optimiser_state = optimiser.update(grads, state.optimiser)
        alive = state.alive & jnp.isfinite(losses) & _all_finite(grads)
        params = jax.tree.map(
            lambda old, update: jnp.where(_over(alive, old), old + update, old), state.params, updates
        )
        return FitState(params, optimiser_state, alive), losses

    def init(group: Group) -> FitState:
        params = jax.vmap(jax.vmap(init_fit, in_axes=(None, 0, 0)))(group.seed, group.held_out, group.restart)
        return FitState(params, optimiser.init(params), jnp.ones(group.held_out.shape, bool))

    def advance(state: FitState, table: PreparedTable, group: Group, start: AnyArray, stop: AnyArray) -> Any:
        def body(step: AnyArray, carry: tuple[FitState, Array]) -> tuple[FitState, Array]:
            state, total = carry
            state, losses = train_step(state, table, group, step)
            return state, total + losses

        state, total = jax.lax.fori_loop(start, stop, body, (state, jnp.zeros(group.held_out.shape)))
        return state, total / (stop - start)

    def seed_energies(params: PyTree, table: PreparedTable) -> Float[Array, "pairs fits cells"]:
        def shares_of(pair: PyTree) -> Array:
            output = jax.vmap(arm.readout.apply, in_axes=(0, None, None))(
                params["readout"], pair, jnp.float32(protocol.tau_end)
            )
            return objectives.normalised_energy(output.energy)

        return jax.lax.map(shares_of, table.inputs, batch_size=EVALUATION_BLOCK)

    def energies(state: FitState, table: PreparedTable) -> Float[Array, "seeds fits pairs cells"]:
        return jnp.swapaxes(jax.vmap(seed_energies, in_axes=(0, None))(state.params, table), 1, 2)

    def evaluate_seed(
        params: PyTree, alive: AnyArray, table: PreparedTable, role: AnyArray, held: AnyArray, labels: AnyArray
    ) -> Any:
        share = seed_energies(params, table)
        first = jnp.argmax(table.cell[None, :] == held[:, None], axis=1)
        examples = jax.tree.map(lambda column: column[first], table.inputs)
        masks = jax.vmap(arm.readout.apply, in_axes=(0, 0, None))(
            params["readout"], examples, jnp.float32(protocol.tau_end)
        ).masks
        q = jax.vmap(assignment_matrix, in_axes=(0, 0, None))(params, held, labels)
        statistics = jax.vmap(
            partial(_fit_stats, grid=grid, selector=arm.assignment.selector, alignment=protocol.alignment),
            in_axes=(1, 0, None, None, 0, 0, 0),
        )
        return statistics(share, q, table.cell, role, held, alive, masks)

    def evaluate(state: FitState, table: PreparedTable, group: Group) -> FitStats:
        return jax.vmap(evaluate_seed, in_axes=(0, 0, None, 0, 0, 0))(
            state.params, state.alive, table, group.role, group.held_out, group.labels
        )

    def compiled(
        function: Callable[..., Any], in_specs: Any, out_specs: Any, once: bool = False, **options: Any
    ) -> Callable[..., Any]:
        """The function on each device's share of the fits, which need nothing of each other's."""

        def at_precision(*args: Any) -> Any:
            with jax.default_matmul_precision(protocol.matmul_precision):
                return function(*args)

        spread = jax.shard_map(at_precision, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        return jax.jit(spread, compiler_options=compiler_options(once), **options)

    state = jax.tree.map(
        lambda leaf: BY_FIT if leaf.ndim else EVERYWHERE,
        jax.eval_shape(init, Group(*(jnp.zeros((1,) * len(spec), jnp.int32) for spec in GROUP_SPECS))),
    )
    return Program(
        compiled(init, (GROUP_SPECS,), state, once=True),
        compiled(advance, (state, EVERYWHERE, GROUP_SPECS, EVERYWHERE, EVERYWHERE), (state, BY_FIT), donate_argnums=0),
        compiled(evaluate, (state, EVERYWHERE, GROUP_SPECS), BY_FIT),
        compiled(energies, (state, EVERYWHERE), BY_FIT),
    )


def over_seeds(function: Callable[..., Any], in_axes: Sequence[int | None]) -> Callable[..., Any]:
    """`jax.vmap` over the first argument's leading axis and others', but one seed alone is computed without that axis.

    XLA lets a product read a transposed operand where it stands, but not through the reshape that such an axis brings.
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


def compiler_options(once: bool = False) -> dict[str, str]:
    """On a CPU, keep XLA's YNNPACK fusions out; and spend less on a program that runs `once` only.

    With jaxlib 0.10 a step takes 1.02 to 1.2 times as long with them on large tokens (N = 196, D = 384 and 1024; five
    noisy comparisons) and no less on small ones, and they would also fuse the softmax's gradient into one kernel that
    takes as long as all the rest of the step. LLVM's first level instead of its third halves the compilation of `init`,
    which then draws the same bits.
    """
    if jax.default_backend() != "cpu":
        return {}
    level = {"xla_backend_optimization_level": "1"} if once else {}
    return {"xla_cpu_experimental_ynn_fusion_type": "", **level}


def _fit_stats(
    share: Float[Array, "pairs cells"],
    q: Float[Array, "cells cells"],
    cell: Int[Array, " pairs"],
    role: Int[Array, " pairs"],
    held_out: Int[Array, ""],
    alive: Bool[Array, ""],
    example_masks: Float[Array, "supports patches"] | None,
    *,
    grid: Grid,
    selector: str,
    alignment: str,
) -> FitStats:
    """The statistics of one fit from its normalised energies over the whole table."""
    observed = cell != held_out
    prediction = jnp.argmax(share, axis=-1)
    if selector == "native-joint":
        correct = prediction == cell
    else:
        labels = jnp.where(jnp.arange(grid.n_cells) != held_out, share @ q.T, -jnp.inf)
        correct = jnp.argmax(labels, axis=-1) == cell
    validation = observed & (role == VALIDATION)
    aligned_on = (observed & (role == OPTIMISATION)).astype(jnp.float32)

    matched = jax.nn.one_hot(prediction, grid.n_cells) if alignment == "hard" else share
    energy = matched.reshape(-1, grid.n_supports, grid.n_operations)
    support, operation = grid.axes(cell)
    return FitStats(
        validation=jnp.sum(correct & validation) / jnp.sum(validation),
        c_sup=_mean_by(support, energy.sum(axis=2), aligned_on),
        c_op=_mean_by(operation, energy.sum(axis=1), aligned_on),
        q=q,
        test_counts=jnp.sum(jax.nn.one_hot(prediction, grid.n_cells, dtype=jnp.int32) * ~observed[:, None], axis=0),
        failed=~(alive & jnp.all(jnp.isfinite(share))),
        example_energy=share[jnp.argmax(cell == held_out)],
        example_masks=example_masks,
    )


def _mean_by(
    value: Int[Array, " pairs"], marginal: Float[Array, "pairs slots"], weight: Float[Array, " pairs"]
) -> Float[Array, "slots slots"]:
    """Row v: the mean marginal of the pairs whose true axis value is v."""
    members = jax.nn.one_hot(value, marginal.shape[1]) * weight[:, None]
    return members.T @ marginal / jnp.maximum(jnp.sum(members, axis=0), 1.0)[:, None]


def _all_finite(grads: PyTree) -> Bool[Array, "seeds fits"]:
    """Of each fit. A sum is finite only if its terms are, and as a product with ones it takes a sixth of the time."""
    leaves = [g.reshape(*g.shape[:2], -1) for g in jax.tree.leaves(grads)]
    return jnp.isfinite(jnp.stack([g @ jnp.ones(g.shape[2]) for g in leaves])).all(axis=0)


def _over(flags: Bool[Array, "seeds fits"], leaf: Array) -> Bool[Array, "..."]:
    """Flags of fits, shaped to broadcast over a leaf of their parameters."""
    return flags.reshape(*flags.shape, *(1,) * (leaf.ndim - 2))
