"""The records that travel from stage to stage. P pairs, N patches, D channels, S supports, O operations, C cells."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt8

from soopf_jax.grid import Grid

if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = jax.Array | np.ndarray
"""An array on the device or on the host; which, mypy need not know."""
Json = Mapping[str, Any]
"""A JSON object: what can be hashed into a key and written into a result."""

# ---------------------------------------------------------------------------------------------- images


class ImagePairs(NamedTuple):
    """Some rendered pairs."""

    source: UInt8[np.ndarray, "pairs height width 3"]
    """The image before the edit."""
    edited: UInt8[np.ndarray, "pairs height width 3"]
    """The image after the edit."""
    region: Int[np.ndarray, "pairs height width"]
    """The support that each pixel belongs to, -1 for none (int8)."""


class SubstrateRequest(NamedTuple):
    """What a user asked of a substrate. A field that a substrate has no use for must be at its default."""

    name: str
    """The name as given, with its argument (`folder:PATH`)."""
    operations: tuple[str, ...] | None = None
    """The operations of the grid; None: the substrate's own three."""
    pairs_per_cell: int | None = None
    """None: the paper's number for this substrate."""
    data_seed: int = 0
    """Seeds every random choice of the substrate."""
    data_root: str | None = None
    """The folder that holds the original data set."""
    coco_split: str = "train2017"
    """The COCO split."""
    edits: int = 1
    """Edits per pair: 1, or 2 at once on two supports, where `pairs_per_cell` counts pairs of each combination."""


class Substrate(NamedTuple):
    """A source of image pairs. A plug-in is a function `SubstrateRequest -> Substrate`."""

    grid: Grid
    cell: Int[np.ndarray, "pairs"]
    """The true cell of every pair; with two edits, the number of its pair of cells in `grid.combinations(2)`."""
    image_size: tuple[int, int]
    """(height, width) of every image."""
    identity: Json
    """All that decides the pixels: name, version, settings, seed, content of data files. Part of the store's key.
    With two edits per pair, `edits` is 2."""
    render: Callable[[Sequence[int]], ImagePairs]
    """The pairs with these numbers. A pair's bytes do not depend on which others are asked for."""


# -------------------------------------------------------------------------------------------- encoders


class Window(NamedTuple):
    """The part of an image that the tokens cover, after resize and crop, in pixels of the image as given."""

    top: float
    left: float
    height: float
    width: float
    rows: int
    """Rows of patches."""
    columns: int
    """Columns of patches; patch n is at row n // columns, column n % columns."""


class EncoderRequest(NamedTuple):
    """What a user asked of an encoder."""

    name: str
    """The name as given, with its argument (`hf:ID_OR_FOLDER`)."""
    layer: int | None = None
    """The hidden layer to read; None: the last, after the final norm."""


class Encoder(NamedTuple):
    """A frozen encoder. A plug-in is a function `EncoderRequest -> Encoder`."""

    identity: Json
    """All that decides the tokens: name, weights' content, preprocessing, layer. Part of the store's key."""
    encode: Callable[[UInt8[np.ndarray, "images height width 3"]], Float[np.ndarray, "images patches channels"]]
    """Patch tokens in float32, row-major, prefix tokens dropped; up to rounding the same however images are batched."""
    window: Callable[[int, int], Window]
    """(height, width) of an image -> what the tokens cover."""
    batch_size: int = 32
    """Images per call of `encode` that suit this encoder on this machine."""
    halves: tuple[Callable[[AnyArray], Any], Callable[[Any], AnyArray]] | None = None
    """`encode` as (prepare, forward): `prepare` then works ahead, in another thread, while `forward` runs."""


# -------------------------------------------------------------------------------------------- features


class FeatureTable(NamedTuple):
    """All that a readout may ever learn from: the tokens of every pair, in memory or in a store."""

    source: Float[np.ndarray, "pairs patches channels"]
    """Tokens of the source image, z_src."""
    delta: Float[np.ndarray, "pairs patches channels"]
    """The innovation field, Eq. (1): tokens of the edited image minus tokens of the source image."""
    region: Float[np.ndarray, "pairs patches supports"] | None
    """The share of each patch that belongs to each support; None where it is not known."""
    cell: Int[np.ndarray, "pairs"]
    """As in Substrate."""
    grid: Grid
    provenance: Json
    """Where the tokens come from: substrate, encoder, versions, checksums."""


# -------------------------------------------------------------------------------------------- readouts


class Dims(NamedTuple):
    """The sizes that shape a readout's parameters."""

    patches: int
    channels: int
    supports: int
    operations: int
    router_width: int = 64
    """R, the width of W_z, p and q."""
    hidden: int = 64
    """Units of the operation MLP."""


class PairView(NamedTuple):
    """What a readout may look at in one pair."""

    source: Float[AnyArray, "patches channels"]
    delta: Float[AnyArray, "patches channels"]
    region: Float[AnyArray, "patches supports"] | None = None
    """Only for a readout whose `sees` names `region`."""
    support: Int[AnyArray, ""] | None = None
    """The edited support; only for a readout whose `sees` names `support`."""


class ReadoutOutput(NamedTuple):
    """What a readout says about one pair."""

    energy: Float[Array, "supports operations"]
    """Non-negative; the prediction is its argmax."""
    masks: Float[Array, "supports patches"] | None = None
    """The router's soft assignment of patches to support slots, where there is one."""


class Readout(NamedTuple):
    """A readout as three pure functions, written for one pair and one fit; the trainer vmaps over both."""

    prepare: Callable[[PairView], PyTree]
    """All that does not depend on parameters, run once over the table."""
    init: Callable[[jax.Array, Dims], PyTree]
    """(key, dims) -> parameters."""
    apply: Callable[[PyTree, PyTree, Float[Array, ""]], ReadoutOutput]
    """(parameters, prepared pair, temperature tau) -> energy and masks."""
    sees: tuple[str, ...] = ()
    """Labels it reads beyond the flat cell label: `region`, `support`."""
    labels: str = "cell"
    """What it is trained on: `cell` labels through an assignment Q, or `native` axis labels (probes have no Q)."""


class Assignment(NamedTuple):
    """How flat cell labels reach the energy grid: Q, row-stochastic, one row per label."""

    init: Callable[[jax.Array, Grid], PyTree]
    """(key, grid) -> parameters; an empty dict where nothing is learned."""
    matrix: Callable[[PyTree, Int[Array, ""], Grid], Float[Array, "cells cells"]]
    """(parameters, held-out label or -1, grid) -> Q. The held-out row is never read."""
    sees: tuple[str, ...] = ()
    """`axes`: labels are cell numbers. `order`: labels are in the order of the cells. Neither: labels are shuffled."""
    selector: str = "flat-cell"
    """How a restart's validation pairs are scored: `flat-cell`, or `native-joint` where there is no Q to fit."""
