"""The table as the fits read it: the readout's `prepare` of every pair, computed once and kept on every device."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from soopf_jax.fitting.compiled import program
from soopf_jax.fitting.devices import EVERYWHERE, mesh_for, put
from soopf_jax.fitting.protocol import OPTIMISATION, Protocol, roles
from soopf_jax.grid import Grid
from soopf_jax.readouts.innovation import layer_norm
from soopf_jax.types import Dims, FeatureTable, PairView, Readout

PAIRS_AT_ONCE = 64
"""Pairs that are prepared, and whose energies are computed after training, at a time."""


class PreparedTable(NamedTuple):
    """The table on the device."""

    inputs: PyTree
    """What the readout's `prepare` made of every pair."""
    changed: Bool[Array, " pairs"]
    """False where the encoder does not see the edit at all."""
    change: Float[Array, " pairs"]
    """sum_n ||delta_n||^2, the squared change of a pair."""
    cell: Int[Array, " pairs"]


class SourceTransform(NamedTuple):
    """What happens to source tokens before a readout's `prepare` gets them."""

    factor: float = 1.0
    layernorm: bool = False
    """Whether every token is first brought to zero mean and unit variance."""


AS_IT_IS = SourceTransform()


class Preparation(NamedTuple):
    """What decides the programs of this module."""

    readout: Readout
    scaled: bool
    """Whether source tokens are multiplied by a factor."""
    layernorm: bool
    pairs: int
    """Pairs of the whole table."""
    mesh: Mesh


@program(EVERYWHERE, gives=EVERYWHERE, once=True)
def empty_table(spec: Preparation, block: PairView) -> PyTree:
    """Zeros of the size of the whole prepared table."""
    shapes = jax.eval_shape(lambda block: prepare_pairs(spec, block, jnp.float32(1)), block)
    return jax.tree.map(lambda leaf: jnp.zeros((spec.pairs, *leaf.shape[1:]), leaf.dtype), shapes)


@program(EVERYWHERE, EVERYWHERE, EVERYWHERE, EVERYWHERE, gives=EVERYWHERE, donate_argnums=1)
def prepare_block(
    spec: Preparation, table: PyTree, block: PairView, factor: Float[Array, ""], start: Int[Array, ""]
) -> PyTree:
    """The table with the pairs of `block`, which begin at `start`, prepared. Only one block is in memory at a time."""
    rows = prepare_pairs(spec, block, factor)
    return jax.tree.map(lambda all_, new: jax.lax.dynamic_update_slice_in_dim(all_, new, start, 0), table, rows)


def prepare_pairs(
    spec: Preparation, block: PairView, factor: Float[Array, ""]
) -> tuple[PyTree, Bool[Array, " pairs"], Float[Array, " pairs"]]:
    """The readout's inputs, whether the encoder sees the edit, and the squared change, for a block of pairs."""

    def prepare_pair(pair: PairView) -> tuple[PyTree, Array, Array]:
        source = pair.source
        if spec.layernorm:
            source = layer_norm(source.astype(jnp.float32)).astype(source.dtype)
        if spec.scaled:
            source = (factor * source).astype(source.dtype)
        change = jnp.sum(jnp.square(pair.delta.astype(jnp.float32)))
        return spec.readout.prepare(pair._replace(source=source)), jnp.any(pair.delta != 0), change

    return jax.vmap(prepare_pair)(block)


def source_transform(table: FeatureTable, protocol: Protocol) -> SourceTransform:
    """What the protocol does to the source tokens of this table, and of any other that is read by the same fits."""
    factor = protocol.source_scale
    if protocol.router_input == "rms":
        factor /= source_rms(table)
    return SourceTransform(factor, protocol.router_input == "layernorm")


def source_rms(table: FeatureTable) -> float:
    """The root mean square of the source tokens, over the pairs that the first seed's split optimises on."""
    chosen = roles(table.cell, table.grid, seed=0) == OPTIMISATION
    total, count = 0.0, 0
    for start in range(0, len(chosen), PAIRS_AT_ONCE):
        rows = slice(start, start + PAIRS_AT_ONCE)
        tokens = table.source[rows][chosen[rows]].astype(np.float64)
        total, count = total + float(np.square(tokens).sum()), count + tokens.size
    return math.sqrt(total / count) or 1.0


def prepare_table(
    table: FeatureTable, readout: Readout, source: SourceTransform = AS_IT_IS, mesh: Mesh | None = None
) -> PreparedTable:
    """Run a readout's `prepare` once over all pairs.

    Args:
        table: The features, in memory or in a store.
        readout: Gets only what its `sees` names.
        source: What happens to the source tokens first.
        mesh: The devices that get the prepared table; None: all devices.

    Returns:
        The prepared table, whole on every device.
    """
    views = views_of(table, readout)
    n_pairs, mesh = len(table.cell), mesh or mesh_for(1, 1)
    size = min(PAIRS_AT_ONCE, n_pairs)
    spec = Preparation(readout, source.factor != 1, source.layernorm, n_pairs, mesh)

    def block(start: int) -> PairView:
        return jax.tree.map(lambda column: column[start : start + size], views)

    # The last block overlaps the one before it, so that all blocks have one shape.
    prepared: Any = empty_table(spec, block(0))
    for start in range(0, n_pairs, size):
        start = min(start, n_pairs - size)
        prepared = prepare_block(spec, prepared, block(start), np.float32(source.factor), np.int32(start))
        jax.block_until_ready(prepared)  # without waiting, all blocks would queue up in memory
    inputs, changed, change = prepared
    return PreparedTable(inputs, changed, change, put(table.cell.astype(np.int32), mesh, EVERYWHERE))


def views_of(table: FeatureTable, readout: Readout) -> PairView:
    """The columns of a table that a readout may look at."""
    return PairView(
        table.source,
        table.delta,
        table.region if "region" in readout.sees else None,
        table.grid.axes(table.cell)[0].astype(np.int32) if "support" in readout.sees else None,
    )


def prepared_shapes(table: FeatureTable, readout: Readout, mesh: Mesh) -> PreparedTable:
    """The shapes of a prepared table on these devices. Nothing is computed."""
    spec = Preparation(readout, False, False, len(table.cell), mesh)
    block = jax.tree.map(
        lambda column: jax.ShapeDtypeStruct((1, *column.shape[1:]), column.dtype), views_of(table, readout)
    )
    inputs, changed, change = empty_table.shapes(spec, block)
    cell: Any = jax.ShapeDtypeStruct(table.cell.shape, np.int32)
    return PreparedTable(inputs, changed, change, cell)


def table_of_zeros(
    cell: Int[np.ndarray, " pairs"], grid: Grid, patches: int, channels: int, dtype: str = "float16"
) -> FeatureTable:
    """A table of this size that takes no memory, for plans: every token is the same zero."""

    def zeros(width: int, dtype: str) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), (len(cell), patches, width))

    tokens = zeros(channels, dtype)
    return FeatureTable(tokens, tokens, zeros(grid.n_supports, "float32"), cell, grid, {})


def dims_of(table: FeatureTable, protocol: Protocol) -> Dims:
    """The sizes of a readout for this table."""
    _, patches, channels = table.source.shape
    grid = table.grid
    sizes = patches, channels, grid.n_supports, grid.n_operations, protocol.router_width, protocol.hidden
    return Dims(*sizes, query_sd=protocol.query_sd or None)
