"""Router diagnostic: do the router's slots follow the true supports, which it has never been shown?

In: the masks of trained fits and the region maps of the table. Out: mean mask IoU and assignment agreement, after one
match of slots to supports per fit. Masks stay on the device, a block of pairs at a time; small sums per fit leave it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from soopf_jax import align, score
from soopf_jax.fit import EVALUATION_BLOCK, Arm, FitState, Group, PreparedTable, compiler_options
from soopf_jax.grid import Grid
from soopf_jax.protocol import OPTIMISATION, UNUSED, Fits, Protocol
from soopf_jax.types import AnyArray, Dims, Readout

MAJORITY = 0.5
"""A patch belongs to the support that covers more than this share of it; a patch without one is not counted."""


class RouterStats(NamedTuple):
    """Sums over pairs, enough for every score under any match of slots to supports.

    A support is present in a pair if some counted patch belongs to it.
    """

    overlap: Float[AnyArray, "*fits supports slots"]
    """sum_n region_{n,r} M_{s,n} over the pairs that slots are matched on."""
    iou: Float[AnyArray, "*fits supports slots"]
    """IoU of support and slot over the number of supports present, where the support is; over scored pairs."""
    iou_edited: Float[AnyArray, "*fits supports slots"]
    """IoU of support and slot in the scored pairs in which that support is edited and present."""
    patches: Int[AnyArray, "*fits supports slots"]
    """Counted patches of scored pairs, by their support and their slot."""
    pairs: Int[AnyArray, "*fits"]
    """Scored pairs in which some support is present."""
    pairs_edited: Int[AnyArray, "*fits"]
    """Scored pairs in which the edited support is present."""


# ---------------------------------------------------------------------------------------------- on the device


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


def fit_stats(
    masks_of: Callable[[PyTree], Float[Array, "slots patches"]],
    inputs: PyTree,
    region: Float[Array, "pairs patches supports"],
    support: Int[Array, " pairs"],
    matched: Bool[Array, " pairs"],
    scored: Bool[Array, " pairs"],
    block: int = EVALUATION_BLOCK,
) -> RouterStats:
    """The sums of one fit, whose router is `masks_of`: prepared pair -> M.

    `inputs` has the pairs in front; `block` pairs are in memory at a time.
    """
    n_pairs = len(support)

    def block_stats(start: Int[Array, ""]) -> RouterStats:
        rows = start + jnp.arange(block)
        inside = rows < n_pairs  # the last block is filled up with copies of the last pair, which do not count
        rows = jnp.minimum(rows, n_pairs - 1)
        masks = jax.vmap(masks_of)(jax.tree.map(lambda column: column[rows], inputs))
        stats = jax.vmap(pair_stats)(masks, region[rows], support[rows], matched[rows] & inside, scored[rows] & inside)
        return _total(stats)

    return _total(jax.lax.map(block_stats, jnp.arange(0, n_pairs, block)))


def _total(stats: RouterStats) -> RouterStats:
    """Summed over the first axis."""
    return jax.tree.map(lambda column: jnp.sum(column, axis=0), stats)


Diagnose = Callable[[FitState, PreparedTable, Any, Group], RouterStats]
"""(trained fits, table, its region maps, in memory or in a store, group) -> sums with (seeds, fits) in front."""


def make_diagnose(arm: Arm, grid: Grid, protocol: Protocol) -> Diagnose:
    """The diagnostic of all fits of a group, jitted; each device does the fits that it holds.

    The readout must have masks. Slots are matched on the optimisation pairs of observed cells and scored on the unused
    pairs of all cells.
    """

    def of_fit(params: PyTree, held_out: Array, role: Array, table: PreparedTable, region: Array) -> RouterStats:
        def masks_of(pair: PyTree) -> Any:
            return arm.readout.apply(params["readout"], pair, jnp.float32(protocol.tau_end)).masks

        matched = (role == OPTIMISATION) & (table.cell != held_out)
        support, _ = grid.axes(table.cell)
        return fit_stats(masks_of, table.inputs, region, support, matched, role == UNUSED)

    def of_group(params: PyTree, group: Group, table: PreparedTable, region: Array) -> RouterStats:
        of_seed = jax.vmap(of_fit, in_axes=(0, 0, None, None, None))
        with jax.default_matmul_precision(protocol.matmul_precision):
            return jax.vmap(of_seed, in_axes=(0, 0, 0, None, None))(params, group.held_out, group.role, table, region)

    compiled = jax.jit(of_group, compiler_options=compiler_options())

    def diagnose(state: FitState, table: PreparedTable, region: Any, group: Group) -> RouterStats:
        return compiled(state.params, group, table, region[:].astype(np.float32))

    return diagnose


def has_masks(readout: Readout, table: PreparedTable, dims: Dims) -> bool:
    """Whether there is a router to diagnose; nothing is computed."""

    def masks_of_first(inputs: PyTree) -> Any:
        pair = jax.tree.map(lambda column: column[0], inputs)
        return readout.apply(readout.init(jax.random.key(0), dims), pair, jnp.float32(1.0)).masks

    return jax.eval_shape(masks_of_first, table.inputs) is not None


# ------------------------------------------------------------------------------------------------ on the host


def score_fit(stats: RouterStats) -> dict[str, float]:
    """The scores of one fit, its slots matched to supports one to one by the largest total overlap.

    `iou`: mean over scored pairs of the mean over supports present; `iou_edited`: of the edited support alone;
    `agreement`: share of counted patches whose slot is matched to their support. NaN where there is nothing to score.
    """
    match = np.arange(len(stats.overlap)), align.injective(stats.overlap)
    return {
        "iou": _ratio(float(stats.iou[match].sum()), int(stats.pairs)),
        "iou_edited": _ratio(float(stats.iou_edited[match].sum()), int(stats.pairs_edited)),
        "agreement": _ratio(float(stats.patches[match].sum()), int(stats.patches.sum())),
    }


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else math.nan


def score_fits(stats: RouterStats, failed: Bool[np.ndarray, " fits"]) -> dict[str, Float[np.ndarray, " fits"]]:
    """The scores of every fit by the names of `score_fit`; NaN for failed fits."""
    scored = np.flatnonzero(~failed & np.isfinite(stats.overlap).all(axis=(1, 2)))
    scores = {name: np.full(len(failed), np.nan) for name in ("iou", "iou_edited", "agreement")}
    for fit in scored:
        for name, value in score_fit(RouterStats(*(column[fit] for column in stats))).items():
            scores[name][fit] = value
    return scores


def summarise(
    fits: Fits, selected: Bool[np.ndarray, " fits"], scores: Mapping[str, Float[np.ndarray, " fits"]]
) -> dict[str, dict[str, Any]]:
    """Every score as the result file has it: mean over the selected fits of a seed, then over seeds, with SD."""
    summary = {}
    for name, value in scores.items():
        per_seed = score.fold_matrix(fits, selected, value).mean(axis=1, keepdims=True)
        record = score.spread(per_seed, ("all",))
        summary[name] = {field: record[field] for field in ("mean", "sd", "ci95", "per_seed")}
    return summary
