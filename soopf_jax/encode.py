"""Image pairs in, blocks of features out: render and prepare, encode, convert, in threads of their own but the encoder.

The encoder never waits for the others as long as they keep its pace, and memory stays the same however many pairs
there are.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from soopf_jax.errors import UserError
from soopf_jax.store_writer import Block
from soopf_jax.types import Encoder, Substrate, Window

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rendered(NamedTuple):
    """A block before the encoder."""

    number: int
    inputs: list[Any]
    """The batches that the encoder will be given: the source images, then the edited ones."""
    region: Float[np.ndarray, "pairs patches supports"]


class Encoded(NamedTuple):
    """A block after the encoder."""

    number: int
    batches: list[Float[np.ndarray, "images patches channels"]]
    """Tokens of the source images, then of the edited ones, as the encoder gave them."""
    region: Float[np.ndarray, "pairs patches supports"]


def encode_blocks(
    substrate: Substrate, encoder: Encoder, first_block: int, size: int, images_per_batch: int, dtype: str
) -> Iterator[tuple[int, Block]]:
    """The numbered blocks of `size` pairs from `first_block` on, in order, tokens in `dtype`.

    The encoder runs in the thread that asks for them.
    """
    total = len(substrate.cell)
    window = encoder.window(*substrate.image_size)

    prepare, forward = encoder.halves or (lambda images: images, encoder.encode)

    def render(number: int) -> Rendered:
        pairs = substrate.render(range(number * size, min(total, (number + 1) * size)))
        images = np.concatenate([pairs.source, pairs.edited])
        inputs = [prepare(images[i : i + images_per_batch]) for i in range(0, len(images), images_per_batch)]
        return Rendered(number, inputs, region_fractions(pairs.region, window, substrate.grid.n_supports))

    def encode(block: Rendered) -> Encoded:
        return Encoded(block.number, [forward(batch) for batch in block.inputs], block.region)

    def convert(block: Encoded) -> tuple[int, Block]:
        first = block.number * size
        source, edited = _source_and_edited(block, window)
        return block.number, Block(
            source=_stored(source, dtype, first),
            delta=_stored(edited - source, dtype, first),
            region=block.region,
            cell=substrate.cell[first : first + size].astype(np.int32),
        )

    rendered = ahead(render, range(first_block, math.ceil(total / size)))
    # Casting to half precision is the slowest step after the encoder, hence two threads.
    return ahead(convert, map(encode, rendered), threads=2)


def ahead(function: Callable[[Item], Result], items: Iterable[Item], threads: int = 1) -> Iterator[Result]:
    """`map(function, items)` in threads of its own, which work on the next items while the caller uses a result."""
    remaining = iter(items)
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[Result]] = deque()
    try:
        while True:
            pending.extend(pool.submit(function, item) for item in islice(remaining, threads + 1 - len(pending)))
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
    """Tokens in the store's dtype, if they fit; `first` is the number of the first pair."""
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
    """The share of each patch's area that each support covers; what is outside the image belongs to none."""
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
