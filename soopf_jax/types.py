"""The records that pass from one stage to the next.

Sizes have the letters of the paper: P pairs, N patches, D channels, S supports, O operations, C cells. This module does
not import JAX, because every command line imports it and should start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from soopf_jax.grid import Grid

if TYPE_CHECKING:
    import jax
    import numpy as np
    from jaxtyping import Array, Float, Int, PyTree, UInt8

    AnyArray = Any
    """An array on the device or on the host. mypy need not know which."""
else:

    def __getattr__(name: str) -> Any:
        """`AnyArray`, for annotations that are checked at run time. JAX is imported when it is first asked for."""
        if name != "AnyArray":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import jax
        import numpy as np

        return jax.Array | np.ndarray


ArrayLike = Any
"""What NumPy can read as an array: lists, NumPy and JAX arrays, torch tensors. It is checked where it is read."""
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
    """What a user asks of a substrate. A substrate refuses a request that sets a field that it does not use."""

    name: str
    """The name as given, with its argument (`folder:PATH`, `coco:SPLIT`)."""
    operations: tuple[str, ...] | None = None
    """The operations of the grid; None: the substrate's own three."""
    pairs_per_cell: int | None = None
    """The number of pairs of each cell; None: the paper's number for this substrate."""
    data_seed: int = 0
    """Seeds every random choice of the substrate."""
    data_root: str | None = None
    """The folder that holds the original data set."""
    edits: int = 1
    """Edits per pair: 1, or 2 on two supports. With 2, `pairs_per_cell` is the number of pairs of each combination."""
    stripe_unit: str = "cycles"
    """What the frequency of stripes counts per pixel: `cycles` or `radians`."""
    stripe_size: int | None = None
    """The width of the image whose pixels that frequency counts; None: the edited image itself."""


class Substrate(NamedTuple):
    """A source of image pairs. A plug-in is a function `SubstrateRequest -> Substrate`."""

    grid: Grid
    cell: Int[np.ndarray, " pairs"]
    """The true cell of every pair; with two edits, the number of its pair of cells in `grid.combinations(2)`."""
    image_size: tuple[int, int]
    """(height, width) of every image."""
    identity: Json
    """Everything that determines the pixels: name, version, settings, seed, content of data files. It is part of the
    key of a feature store. With two edits per pair, its entry `edits` is 2."""
    render: Callable[[Sequence[int]], ImagePairs]
    """Renders the pairs with these numbers. The bytes of a pair do not depend on the other pairs in the call."""


# -------------------------------------------------------------------------------------------- encoders


class Window(NamedTuple):
    """The part of an image that the tokens cover after resize and crop, in pixels of the original image."""

    top: float
    left: float
    height: float
    width: float
    rows: int
    """Rows of patches."""
    columns: int
    """Columns of patches; patch n is at row n // columns, column n % columns."""


class EncoderRequest(NamedTuple):
    """What a user asks of an encoder."""

    name: str
    """The name as given, with its argument (`hf:ID_OR_FOLDER`)."""
    layer: int | None = None
    """The hidden layer to read; None: the last, after the final norm."""


class Layers(NamedTuple):
    """The hidden layers of an encoder. One forward pass gives the tokens of any number of them.

    A layer is a number as in EncoderRequest, counted from the front, or None for the encoder's output.
    """

    depth: int
    """The number of blocks. Layer 0 is the input of the first block, layer `depth` the output of the last."""
    identity: Callable[[int | None], Json]
    """Layer -> the identity of the encoder that was opened for this layer alone."""
    forward: Callable[[Any, Sequence[int | None]], Sequence[AnyArray]]
    """(prepared images, layers) -> the tokens of each layer. Images are prepared as the encoder's `stages` say."""


class Encoder(NamedTuple):
    """A frozen encoder. A plug-in is a function `EncoderRequest -> Encoder`."""

    identity: Json
    """Everything that determines the tokens: name, hash of the weights, preprocessing, layer. It is part of the key of
    a feature store."""
    encode: Callable[[UInt8[np.ndarray, "images height width 3"]], Float[np.ndarray, "images patches channels"]]
    """Images -> patch tokens in float32, row-major, without prefix tokens. Apart from rounding, they must not depend on
    how images are batched."""
    window: Callable[[int, int], Window]
    """(height, width) of an image -> the part of it that the tokens cover."""
    batch_size: int = 32
    """The best number of images per call of `encode` on this machine."""
    stages: tuple[Callable[[AnyArray], Any], Callable[[Any], AnyArray]] | None = None
    """`encode` split into (prepare, forward). `prepare` then runs ahead in another thread while `forward` runs."""
    layers: Layers | None = None
    """None: it has no hidden layers that share one grid of patches."""


# -------------------------------------------------------------------------------------------- features


class FeatureTable(NamedTuple):
    """The tokens of every pair, in memory or in a store. A readout learns from nothing else."""

    source: Float[np.ndarray, "pairs patches channels"]
    """Tokens of the source image, z_src."""
    delta: Float[np.ndarray, "pairs patches channels"]
    """The innovation field, Eq. (1): tokens of the edited image minus tokens of the source image."""
    region: Float[np.ndarray, "pairs patches supports"] | None
    """The share of each patch that belongs to each support; None if it is unknown."""
    cell: Int[np.ndarray, " pairs"]
    """As in Substrate."""
    grid: Grid
    provenance: Json
    """Where the tokens come from: substrate, encoder, versions, checksums."""

    @classmethod
    def from_tokens(
        cls,
        source: Float[AnyArray, "pairs patches channels"] | ArrayLike,
        edited: Float[AnyArray, "pairs patches channels"] | ArrayLike,
        cell: Int[AnyArray, " pairs"] | ArrayLike,
        supports: Sequence[str] | ArrayLike,
        operations: Sequence[str] | ArrayLike,
        region: Int[AnyArray, "pairs patches"] | ArrayLike | None = None,
    ) -> FeatureTable:
        """A table of tokens that were made elsewhere. NumPy and JAX arrays and torch tensors are accepted.

        Examples:
            >>> table = FeatureTable.from_tokens(source, edited, cell, ["left", "right"], ["hue", "blur"])

        Args:
            source: Tokens of each image before its edit.
            edited: Tokens of each image after its edit.
            cell: The edited cell of each pair, `support * len(operations) + operation`. Every cell needs five pairs.
            supports: The names of the supports.
            operations: The names of the operations.
            region: The support that each patch belongs to, -1 for none; None if it is unknown.

        Raises:
            UserError: The arrays do not fit together, or hold values that cannot be used.
        """
        from soopf_jax.tokens import as_arrays, check_tokens

        arrays = as_arrays(
            source=source, edited=edited, cell=cell, supports=supports, operations=operations, region=region
        )
        tokens = check_tokens(arrays)
        return cls(*tokens, {"kind": "tokens", "sha256": tokens.sha256()})


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
    query_sd: float | None = None
    """The initial SD of the router's queries q; None: 1 / sqrt(R)."""


class PairView(NamedTuple):
    """What a readout may look at in one pair."""

    source: Float[AnyArray, "patches channels"]
    delta: Float[AnyArray, "patches channels"]
    region: Float[AnyArray, "patches supports"] | None = None
    """Only for a readout whose `sees` names `region`."""
    support: Int[AnyArray, ""] | None = None
    """The edited support; only for a readout whose `sees` names `support`."""


class ReadoutOutput(NamedTuple):
    """The output of a readout for one pair."""

    energy: Float[Array, "supports operations"]
    """Non-negative; the prediction is its argmax."""
    masks: Float[Array, "supports patches"] | None = None
    """The router's soft assignment of patches to support slots; None for a readout without a router."""


class Readout(NamedTuple):
    """A readout: three pure functions, written for one pair and one fit. The trainer vmaps over both."""

    prepare: Callable[[PairView], PyTree]
    """Computes everything that does not depend on parameters. It runs once for every pair of the table."""
    init: Callable[[jax.Array, Dims], PyTree]
    """(key, dims) -> parameters."""
    apply: Callable[[PyTree, PyTree, Float[Array, ""]], ReadoutOutput]
    """(parameters, prepared pair, temperature tau) -> energy and masks."""
    sees: tuple[str, ...] = ()
    """The labels that it reads in addition to the flat cell label: `region`, `support`."""
    labels: str = "cell"
    """What it is trained on: `cell` labels through an assignment Q, or `native` labels of the two axes, without Q."""
    quadratic: bool = False
    """Whether the energy in the paper grows with the squared change of a pair. `prepare` divides this scale out."""


class Trial(NamedTuple):
    """Short training of a readout under some grids: what a search may choose by."""

    loss: Float[np.ndarray, " grids"]
    """Mean training loss over the last steps; infinite for a fit that failed."""
    validation: Float[np.ndarray, " grids"]
    """Share of the validation pairs of observed cells whose flat label is predicted."""


class ObservedFold(NamedTuple):
    """All that a proposal may be based on: the optimisation pairs of the observed cells, with flat labels."""

    described: PyTree
    """What `Proposer.describe` made of each of these pairs, as NumPy arrays with the pairs in front."""
    label: Int[np.ndarray, " pairs"]
    """The flat labels of the pairs."""
    held_out: int
    """The label without pairs; -1 if all cells are observed."""
    grid: Grid
    """The numbers of supports and operations. Which label is which cell is not known."""
    seed: int
    """Seeds every random choice of the proposal."""
    trial: Callable[[Int[np.ndarray, "grids labels"], Int[np.ndarray, " grids"]], Trial]
    """(placements, number of the restart of each) -> what short training gives. Equal restarts have equal initial
    values. Calls with equally many placements share their compiled program."""


class Proposal(NamedTuple):
    """The grid that a fold is trained with."""

    placement: Int[np.ndarray, " labels"]
    """The cell of each label, a permutation of the cells. The held-out label has the cell that is left."""
    fitness: Callable[[Int[np.ndarray, " labels"]], float]
    """What the proposer maximised. For evaluation only, it is also asked for the fitness of the true grid: this tells
    a search that failed from a grid that cannot be found in this way."""


class Proposer(NamedTuple):
    """Decides the grid of every fold before training."""

    describe: Callable[[PairView], PyTree]
    """The statistics of one pair. It runs once for every pair of the table."""
    propose: Callable[[ObservedFold], Proposal]
    """The grid of one fold, on the host."""


class Assignment(NamedTuple):
    """The map Q from flat cell labels to cells of the energy grid. It is row-stochastic, with one row per label."""

    init: Callable[[jax.Array, Grid], PyTree]
    """(key, grid) -> parameters; an empty dict if nothing is learned."""
    matrix: Callable[[PyTree, Int[Array, ""], Grid], Float[Array, "cells cells"]]
    """(parameters, held-out label or -1, grid) -> Q. The held-out row is never read."""
    sees: tuple[str, ...] = ()
    """What it knows about labels. `axes`: labels are cell numbers. `order`: labels are in the order of the cells. If it
    names neither, labels are shuffled."""
    selector: str = "flat-cell"
    """How validation pairs are scored to select a restart: `flat-cell`, or `native-joint` if there is no Q to fit."""
    proposer: Proposer | None = None
    """If given, it decides the grid of every fold, and the parameters are {"q": the Q of this grid} instead of those
    of `init`."""
