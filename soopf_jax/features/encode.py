"""Image pairs in, blocks of features out, in three stages: render and prepare, encode, convert.

The encoder runs in the caller's thread. The other stages run in threads of their own, so the encoder does not wait for
them as long as they are fast enough. The memory that is used does not depend on the number of pairs.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.errors import UserError
from soopf_jax.features.store_writer import Block
from soopf_jax.types import Encoder, Substrate, Window

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rendered(NamedTuple):
    """A block before the encoder."""

    number: int
    inputs: list[Any]
    """The batches for the encoder: first the source images, then the edited ones."""
    region: Float[np.ndarray, "pairs patches supports"]


class Encoded(NamedTuple):
    """One layer of a block after the encoder."""

    number: int
    layer: int
    """The place of the layer among those that are encoded."""
    batches: list[Float[np.ndarray, "images patches channels"]]
    """The encoder's output: tokens of the source images, then of the edited ones."""
    region: Float[np.ndarray, "pairs patches supports"]


class Blocks(NamedTuple):
    """How a store is cut into blocks. The last bits of tokens depend on it."""

    size: int
    """Pairs in a block."""
    images_per_batch: int
    """Images in a batch of the encoder."""
    dtype: str
    """The number format of stored tokens."""


def encode_blocks(
    substrate: Substrate, encoder: Encoder, first_block: int, size: int, images_per_batch: int, dtype: str
) -> Iterator[tuple[int, Block]]:
    """Encode a substrate block by block. The encoder runs in the thread that iterates over the result.

    Args:
        substrate: The source of the pairs.
        encoder: The encoder.
        first_block: The number of the first block to encode.
        size: The number of pairs in a block.
        images_per_batch: The number of images in a batch of the encoder.
        dtype: The number format of the tokens.

    Returns:
        An iterator over the number of each block and the block, in order.

    Raises:
        UserError: The encoder returns tokens of a wrong shape, or values that are not finite or too large for `dtype`.
    """
    cut = Blocks(size, images_per_batch, dtype)
    return ((number, block) for number, _, block in encode_layers(substrate, encoder, None, [first_block], cut))


def encode_layers(
    substrate: Substrate,
    encoder: Encoder,
    layers: Sequence[int | None] | None,
    first_blocks: Sequence[int],
    cut: Blocks,
) -> Iterator[tuple[int, int, Block]]:
    """Encode several layers of an encoder from one forward pass per image, block by block.

    Args:
        substrate: The source of the pairs.
        encoder: The encoder.
        layers: The layers; None: the one that the encoder was opened for.
        first_blocks: For each layer, the number of the first block that is wanted of it.
        cut: How the pairs are cut into blocks.

    Returns:
        An iterator over the number of a block, the place of the layer in `layers` and the block of this layer. Blocks
        are in order, and the layers of each block too.

    Raises:
        UserError: As in `encode_blocks`.
    """
    size, images_per_batch, dtype = cut
    total = len(substrate.cell)
    window = encoder.window(*substrate.image_size)
    prepare, forward = _stages(encoder, layers)

    def render(number: int) -> Rendered:
        pairs = substrate.render(range(number * size, min(total, (number + 1) * size)))
        images = np.concatenate([pairs.source, pairs.edited])
        inputs = [prepare(images[i : i + images_per_batch]) for i in range(0, len(images), images_per_batch)]
        return Rendered(number, inputs, region_fractions(pairs.region, window, substrate.grid.n_supports))

    def encode(block: Rendered) -> Iterator[Encoded]:
        wanted = [place for place, first in enumerate(first_blocks) if block.number >= first]
        batches = [list(forward(batch, wanted)) for batch in block.inputs]
        for place in wanted:
            # Taken out of the lists: a layer that has been converted needs no memory any more.
            yield Encoded(block.number, place, [batch.pop(0) for batch in batches], block.region)

    def convert(block: Encoded) -> tuple[int, int, Block]:
        first = block.number * size
        source, edited = _source_and_edited(block, window)
        return (
            block.number,
            block.layer,
            Block(
                source=_stored(source, dtype, first),
                delta=_stored(edited - source, dtype, first),
                region=block.region,
                cell=substrate.cell[first : first + size].astype(np.int32),
            ),
        )

    rendered = ahead(render, range(min(first_blocks), math.ceil(total / size)))
    encoded = itertools.chain.from_iterable(map(encode, rendered))
    # Casting to half precision is the slowest stage after the encoder and gets two threads. All layers of a block may
    # wait for them while the next block is encoded.
    return ahead(convert, encoded, threads=2, waiting=max(3, len(first_blocks)))


def _stages(
    encoder: Encoder, layers: Sequence[int | None] | None
) -> tuple[Callable[[Any], Any], Callable[[Any, Sequence[int]], Sequence[np.ndarray]]]:
    """(prepare, forward), where `forward` takes prepared images and places in `layers`."""
    prepare, alone = encoder.stages or (lambda images: images, encoder.encode)
    if layers is None:
        return prepare, lambda prepared, _: [alone(prepared)]
    if encoder.layers is None:
        raise ValueError("the encoder has no layers")
    forward = encoder.layers.forward
    return prepare, lambda prepared, places: forward(prepared, [layers[place] for place in places])


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = 1, waiting: int | None = None
) -> Iterator[Result]:
    """`map(function, items)` in separate threads. They process the next items while the caller uses a result.

    Args:
        function: What is done with each item.
        items: The items. They are taken in the caller's thread.
        threads: The number of threads.
        waiting: The most items that are in work or wait for the caller. By default one more than there are threads.
    """
    waiting = waiting or threads + 1
    remaining = iter(items)
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[Result]] = deque()
    try:
        while True:
            pending.extend(pool.submit(function, item) for item in itertools.islice(remaining, waiting - len(pending)))
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _source_and_edited(
    block: Encoded, window: Window
) -> tuple[Float[np.ndarray, "pairs patches channels"], Float[np.ndarray, "pairs patches channels"]]:
    """The tokens of a block's source images and of its edited ones, in float32."""
    tokens = np.concatenate(block.batches, dtype=np.float32)
    n_pairs, n_patches, _ = block.region.shape
    if tokens.shape[:2] != (2 * n_pairs, n_patches):
        expected = f"{2 * n_pairs} images of {window.rows} x {window.columns} patches"
        raise UserError(f"the encoder gave tokens of shape {list(tokens.shape)} for {expected}; correct its window")
    return tokens[:n_pairs], tokens[n_pairs:]


def _stored(tokens: Float[np.ndarray, "pairs patches channels"], dtype: str, first: int) -> np.ndarray:
    """Tokens in the dtype of the store; a UserError if they do not fit. `first` is the number of the first pair."""
    peak = np.abs(tokens).max(axis=(1, 2))
    fits = peak <= np.finfo(dtype).max  # false for NaN
    if not fits.all():
        pair = int(np.argmin(fits))
        if not np.isfinite(peak[pair]):
            raise UserError(
                f"the encoder gave NaN or infinity for pair {first + pair}; check its weights and that image"
            )
        raise UserError(
            f"pair {first + pair} has a token value of {peak[pair]:.3g}, too large for {dtype}; use --dtype float32"
        )
    return tokens.astype(dtype)


def region_fractions(
    region: Int[np.ndarray, "pairs height width"], window: Window, n_supports: int
) -> Float[np.ndarray, "pairs patches supports"]:
    """The share of each patch's area that each support covers. What is outside the image belongs to no support."""
    rows = _overlap(window.top, window.height, window.rows, region.shape[1])
    columns = _overlap(window.left, window.width, window.columns, region.shape[2])
    shares = [rows @ (region == support) @ columns.T for support in range(n_supports)]
    return np.stack(shares, axis=-1).reshape(len(region), -1, n_supports).astype(np.float32)


def _overlap(start: float, length: float, n_patches: int, n_pixels: int) -> Float[np.ndarray, "patches pixels"]:
    """The share of each patch along one axis that each pixel covers."""
    edges = start + length * np.arange(n_patches + 1) / n_patches
    pixel = np.arange(n_pixels)
    covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.maximum(covered, 0) * (n_patches / length)
