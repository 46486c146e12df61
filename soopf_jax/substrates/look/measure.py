"""Rendered pairs in, numbers about them out: what the edits changed, and where."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from soopf_jax.types import ImagePairs, Substrate

PAIRS_PER_BLOCK = 64
"""How many pairs are rendered at once: 30 MB of 256-pixel images."""


class Measures(NamedTuple):
    """Measurements of some pairs, one entry per pair."""

    inside: Float[np.ndarray, "pairs"]
    """Mean absolute change of the edited supports' pixels, in grey levels; 0 if there are no such pixels."""
    outside: Float[np.ndarray, "pairs"]
    """The same for all other pixels."""
    changed: Float[np.ndarray, "pairs"]
    """The share of pixels that changed at all."""
    shares: Float[np.ndarray, "pairs supports_and_none"]
    """The share of the picture that belongs to each support and, last, to none."""
    source_range: Int[np.ndarray, "pairs 2"]
    """The smallest and the largest value of the source image."""
    edited_range: Int[np.ndarray, "pairs 2"]
    """The same for the edited image."""


class Survey(NamedTuple):
    """The measurements of some pairs, and the pairs that were kept."""

    measures: Measures
    sha256: str
    """The hash of the bytes of every pair in order: source, edited, region."""
    kept: dict[int, ImagePairs]
    """pair -> its images, for the pairs that were to be kept."""


def survey(substrate: Substrate, pairs: Sequence[int], keep: Collection[int], advance: Callable[[int], None]) -> Survey:
    """Render and measure pairs block by block.

    Args:
        substrate: The source of the pairs.
        pairs: The numbers of the pairs to measure.
        keep: The numbers of the pairs whose images are to be kept.
        advance: Called with the number of pairs done since the last call.
    """
    edited = edited_supports(substrate)
    digest, kept, blocks = hashlib.sha256(), {}, []
    for first in range(0, len(pairs), PAIRS_PER_BLOCK):
        block = pairs[first : first + PAIRS_PER_BLOCK]
        rendered = substrate.render(block)
        blocks.append(measure(rendered, edited[substrate.cell[list(block)]]))
        for place, pair in enumerate(block):
            one = ImagePairs(*(images[place : place + 1] for images in rendered))
            for images in one:
                digest.update(images.tobytes())
            if pair in keep:
                kept[pair] = one
        advance(len(block))
    return Survey(Measures(*map(np.concatenate, zip(*blocks, strict=True))), digest.hexdigest(), kept)


def edited_supports(substrate: Substrate) -> Bool[np.ndarray, "cells supports_and_none"]:
    """The edited supports of each cell or, with two edits, of each combination of cells."""
    edited = np.array(substrate.grid.edited_supports(substrate.identity.get("edits", 1)))
    return np.pad(edited, ((0, 0), (0, 1)))


def measure(rendered: ImagePairs, edited_supports: Bool[np.ndarray, "pairs supports_and_none"]) -> Measures:
    """Measure some pairs; `edited_supports` marks the edited supports of each."""
    source, edited, region = rendered
    n_pairs, n_supports = len(source), edited_supports.shape[1] - 1
    change = np.abs(edited.astype(np.int16) - source)
    inside = edited_supports[np.arange(n_pairs)[:, None, None], region]  # -1, for no support, indexes the last entry

    def mean_change(where: np.ndarray) -> np.ndarray:
        total = (change.mean(axis=3) * where).sum(axis=(1, 2))
        return total / np.maximum(where.sum(axis=(1, 2)), 1)

    return Measures(
        inside=mean_change(inside),
        outside=mean_change(~inside),
        changed=change.any(axis=3).mean(axis=(1, 2)),
        shares=np.stack([(region == s).mean(axis=(1, 2)) for s in (*range(n_supports), -1)], axis=1),
        source_range=np.stack([source.min(axis=(1, 2, 3)), source.max(axis=(1, 2, 3))], axis=1),
        edited_range=np.stack([edited.min(axis=(1, 2, 3)), edited.max(axis=(1, 2, 3))], axis=1),
    )
