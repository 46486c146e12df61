"""Do the router's slots follow the true supports, which it has never been shown? Sums over pairs, on the device.

In: trained fits and the region maps of the table. Out: RouterStats, from which `scoring.router_diagnostic` makes mean
IoU and agreement. Masks stay on the device, a block of pairs at a time; only small sums of each fit leave it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from soopf_jax.fitting.blocks import in_blocks
from soopf_jax.fitting.compiled import program
from soopf_jax.fitting.devices import BY_FIT, EVERYWHERE
from soopf_jax.fitting.group import LAYOUT_OF_GROUP, Group
from soopf_jax.fitting.prepare import PAIRS_AT_ONCE, PreparedTable
from soopf_jax.fitting.program import LAYOUT_OF_STATE, FitState, Training
from soopf_jax.fitting.protocol import OPTIMISATION, UNUSED
from soopf_jax.types import AnyArray, Dims, Readout

MAJORITY = 0.5
"""A patch belongs to the support that covers more than this share of it; a patch without one is not counted."""
SATURATED = 0.99
"""A patch whose largest mask is above this gives its router next to no gradient."""


class RouterStats(NamedTuple):
    """Sums over pairs, enough for every score under any match of slots to supports.

    A support is present in a pair if some counted patch belongs to it.
    """

    overlap: Float[AnyArray, "*fits supports slots"]
    """sum_n region_{n,r} M_{s,n} over the pairs that slots are matched on."""
    iou: Float[AnyArray, "*fits supports slots"]
    """IoU of support and slot, divided by the number of supports present, in scored pairs with the support present."""
    iou_edited: Float[AnyArray, "*fits supports slots"]
    """IoU of support and slot in the scored pairs in which that support is edited and present."""
    patches: Int[AnyArray, "*fits supports slots"]
    """Counted patches of scored pairs, by their support and their slot."""
    pairs: Int[AnyArray, "*fits"]
    """Scored pairs in which some support is present."""
    pairs_edited: Int[AnyArray, "*fits"]
    """Scored pairs in which the edited support is present."""


class RouterState(NamedTuple):
    """How decided a router is, as means over all patches of all pairs. It needs no region maps."""

    spread: Float[AnyArray, "*fits"]
    """max_s log M_s - min_s log M_s: how far apart the logits of the slots are."""
    saturated: Float[AnyArray, "*fits"]
    """Share of patches of which one slot takes more than SATURATED."""
    entropy: Float[AnyArray, "*fits"]
    """-sum_s M_s log M_s / log S: 1 where the slots share every patch equally, 0 where each patch has one slot."""


@program(LAYOUT_OF_STATE, EVERYWHERE, gives=BY_FIT)
def router_state(spec: Training, state: FitState, table: PreparedTable) -> RouterState:
    """The state of the routers of some fits, with (seeds, fits) in front; the readout must have masks."""
    blocks = in_blocks(len(table.cell), PAIRS_AT_ONCE)

    def of_fit(params: PyTree) -> RouterState:
        def of_pair(row: Int[Array, ""]) -> RouterState:
            pair = jax.tree.map(lambda column: column[row], table.inputs)
            output: Any = spec.arm.readout.apply(params["readout"], pair, jnp.float32(spec.protocol.tau_end))
            return state_of_masks(output.masks)

        def of_block(block: tuple[Int[Array, " size"], Bool[Array, " size"]]) -> RouterState:
            rows, real = block
            return jax.tree.map(lambda values: jnp.sum(values * real), jax.vmap(of_pair)(rows))

        return jax.tree.map(lambda sums: jnp.sum(sums) / len(table.cell), jax.lax.map(of_block, tuple(blocks)))

    with spec.precision:
        return jax.vmap(jax.vmap(of_fit))(state.params)


def state_of_masks(masks: Float[Array, "slots patches"]) -> RouterState:
    """The state of one router on one pair."""
    logs = jnp.log(jnp.maximum(masks, jnp.finfo(jnp.float32).tiny))
    entropy = -jnp.sum(masks * logs, axis=0) / jnp.log(masks.shape[0])
    return RouterState(
        spread=jnp.mean(jnp.max(logs, axis=0) - jnp.min(logs, axis=0)),
        saturated=jnp.mean(jnp.max(masks, axis=0) > SATURATED),
        entropy=jnp.mean(entropy),
    )


def diagnose(spec: Training, state: FitState, table: PreparedTable, region: Any, group: Group) -> RouterStats:
    """The sums of every fit of a group, with (seeds, fits) in front.

    Args:
        spec: The arm, whose readout must have masks.
        state: The trained fits.
        table: The prepared table.
        region: The region maps of the table, in memory or in a store.
        group: The fits. Slots are matched on the optimisation pairs of observed cells and scored on the unused pairs
            of all cells.
    """
    return router_sums(spec, state, table, region[:].astype(np.float32), group)


@program(LAYOUT_OF_STATE, EVERYWHERE, EVERYWHERE, LAYOUT_OF_GROUP, gives=BY_FIT)
def router_sums(
    spec: Training, state: FitState, table: PreparedTable, region: Float[Array, "pairs patches supports"], group: Group
) -> RouterStats:
    """`diagnose` with the region maps on the device."""
    support, _ = spec.grid.axes(table.cell)

    def of_fit(params: PyTree, held_out: Array, role: Array) -> RouterStats:
        def masks_of(pair: PyTree) -> Any:
            return spec.arm.readout.apply(params["readout"], pair, jnp.float32(spec.protocol.tau_end)).masks

        matched = (role == OPTIMISATION) & (table.cell != held_out)
        return fit_sums(masks_of, table.inputs, region, support, matched, role == UNUSED)

    with spec.precision:
        return jax.vmap(jax.vmap(of_fit, in_axes=(0, 0, None)))(state.params, group.held_out, group.role)


def fit_sums(
    masks_of: Callable[[PyTree], Float[Array, "slots patches"]],
    inputs: PyTree,
    region: Float[Array, "pairs patches supports"],
    support: Int[Array, " pairs"],
    matched: Bool[Array, " pairs"],
    scored: Bool[Array, " pairs"],
    block: int = PAIRS_AT_ONCE,
) -> RouterStats:
    """The sums of one fit.

    Args:
        masks_of: Its router: prepared pair -> M.
        inputs: The prepared pairs.
        region: The share of each patch that belongs to each support.
        support: The edited support of each pair.
        matched: Whether a pair serves to match slots to supports.
        scored: Whether a pair serves to score the match.
        block: Pairs that are in memory at a time.
    """
    blocks = in_blocks(len(support), block)

    def block_sums(block: tuple[Int[Array, " size"], Bool[Array, " size"]]) -> RouterStats:
        rows, real = block
        masks = jax.vmap(masks_of)(jax.tree.map(lambda column: column[rows], inputs))
        return _total(
            jax.vmap(pair_stats)(masks, region[rows], support[rows], matched[rows] & real, scored[rows] & real)
        )

    return _total(jax.lax.map(block_sums, tuple(blocks)))


def pair_stats(
    masks: Float[Array, "slots patches"],
    region: Float[Array, "patches supports"],
    support: Int[Array, ""],
    matched: Bool[Array, ""],
    scored: Bool[Array, ""],
) -> RouterStats:
    """What one pair, edited at `support`, adds to the sums of one fit.

    The hard mask of slot s is the patches where M_s is the largest, the first on ties. `matched` and `scored` say
    whether the pair serves to match slots to supports, and to score the match.
    """
    counted = jnp.max(region, axis=1) > MAJORITY
    in_support = jax.nn.one_hot(jnp.argmax(region, axis=1), region.shape[1], dtype=jnp.int32) * counted[:, None]
    in_slot = jax.nn.one_hot(jnp.argmax(masks, axis=0), masks.shape[0], dtype=jnp.int32) * counted[:, None]
    intersection = in_support.T @ in_slot
    area = jnp.sum(in_support, axis=0)
    union = area[:, None] + jnp.sum(in_slot, axis=0) - intersection
    present = scored & (area > 0)
    iou = jnp.where(present[:, None], intersection / jnp.maximum(union, 1), 0.0)
    return RouterStats(
        overlap=jnp.where(matched, region.T @ masks.T, 0.0),
        iou=iou / jnp.maximum(jnp.sum(present), 1),
        iou_edited=iou * (jnp.arange(len(area)) == support)[:, None],
        patches=intersection * scored,
        pairs=jnp.any(present).astype(jnp.int32),
        pairs_edited=present[support].astype(jnp.int32),
    )


def _total(stats: RouterStats) -> RouterStats:
    """Summed over the first axis."""
    return jax.tree.map(lambda column: jnp.sum(column, axis=0), stats)


def has_masks(readout: Readout, table: PreparedTable, dims: Dims) -> bool:
    """Whether there is a router to diagnose; nothing is computed."""
    return masks_of_first.eval_shape(readout, dims, table.inputs) is not None


@partial(jax.jit, static_argnums=(0, 1))
def masks_of_first(readout: Readout, dims: Dims, inputs: PyTree) -> Any:
    """The masks of a first pair."""
    pair = jax.tree.map(lambda column: column[0], inputs)
    return readout.apply(readout.init(jax.random.key(0), dims), pair, jnp.float32(1.0)).masks
