"""A substrate and an encoder of a few pixels, for tests of what carries features about; usable as plug-ins by name."""

import os
import time
from collections.abc import Sequence

import numpy as np

from soopf_jax.grid import Grid
from soopf_jax.types import Encoder, EncoderRequest, ImagePairs, Json, Layers, Substrate, SubstrateRequest, Window

GRID = Grid.of(["floor", "wall", "object"], ["hue", "invert", "pattern"])
PIXELS, PATCHES, CHANNELS = 12, 9, 16
"""As many tokens as in `planted.small_table`, so that both are trained by the same programs."""


def image_pair(data_seed: int, pair: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, edited, region) of one pair: noise, and the noise of the edited support's pixels redrawn."""
    rng = np.random.default_rng([data_seed, pair])
    source = rng.integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
    region = rng.integers(-1, GRID.n_supports, (PIXELS, PIXELS)).astype(np.int8)
    edited = np.where(region[..., None] == pair % 3, 255 - source, source)
    return source, edited, region


def open_substrate(request: SubstrateRequest) -> Substrate:
    """Nine cells in turn."""
    n_pairs = GRID.n_cells * (request.pairs_per_cell or 6)

    def render(pairs: Sequence[int]) -> ImagePairs:
        source, edited, region = zip(*(image_pair(request.data_seed, pair) for pair in pairs), strict=True)
        return ImagePairs(np.stack(source), np.stack(edited), np.stack(region))

    return Substrate(
        grid=GRID,
        cell=np.arange(n_pairs, dtype=np.int32) % GRID.n_cells,
        image_size=(PIXELS, PIXELS),
        identity={"name": "tiny", "pairs_per_cell": request.pairs_per_cell, "seed": request.data_seed},
        render=render,
    )


def encode(images: np.ndarray) -> np.ndarray:
    """A fixed linear map of each 4 x 4 patch, plus a seeded offset so that float16 has something to round."""
    time.sleep(float(os.environ.get("TINY_DELAY", 0)))
    weights = np.random.default_rng(0).standard_normal((48, CHANNELS)).astype(np.float32)
    patches = images.reshape(-1, 3, 4, 3, 4, 3).swapaxes(2, 3).reshape(len(images), PATCHES, 48)
    return 1000 + (patches.astype(np.float32) / 255) @ weights


def open_encoder(request: EncoderRequest) -> Encoder:
    """Three by three patches over the whole image."""
    return Encoder(
        identity={"name": "tiny-linear", "layer": request.layer},
        encode=encode,
        window=lambda height, width: Window(0.0, 0.0, float(height), float(width), 3, 3),
        batch_size=16,
    )


DEPTH = 3


def open_layered(request: EncoderRequest) -> Encoder:
    """The same with three blocks, each of which adds 10 to the tokens; the final norm adds 100."""

    def forward(images: np.ndarray, layers: Sequence[int | None]) -> list[np.ndarray]:
        tokens = encode(images)
        return [tokens + (10 * DEPTH + 100 if layer is None else 10 * layer) for layer in layers]

    def identity(layer: int | None) -> Json:
        return {"name": "tiny-layered", "layer": layer}

    return open_encoder(request)._replace(
        identity=identity(request.layer),
        encode=lambda images: forward(images, [request.layer])[0],
        layers=Layers(DEPTH, identity, forward),
    )
