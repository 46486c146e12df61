"""A table of features in, a few numbers about its tokens out.

They tell how a table differs from another one before anything is trained: how large its tokens are, how much of an edit
the encoder keeps in its place, and how many directions the changes use. A finished store keeps them in its manifest,
and every result has them. They are no part of the key of a store.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from soopf_jax.types import FeatureTable, Json

PAIRS_AT_ONCE = 32
"""Pairs that are in memory at a time."""
PAIRS_OF_RANK = 256
"""The most pairs whose tokens count for the effective rank. With ViT-L tokens they take two seconds."""
DIGITS = 6
"""Significant digits. The last bits of a sum depend on the machine, and stores must not."""


class FeatureStatistics(NamedTuple):
    """What a table of features is like."""

    source_rms: float
    """The root mean square of the source tokens, over pairs, patches and channels."""
    delta_rms: float
    """The same for the change of the tokens, delta."""
    change_inside: float | None
    """The share of the squared change that is in the edited region. A patch counts by the share of its area that the
    edited supports cover. None if regions are unknown or if nothing changes."""
    effective_rank: float | None
    """exp(-sum_i p_i log p_i), in which p are the eigenvalues of sum_n delta_n delta_n^T, over all patches of pairs,
    divided by their sum. It is the number of directions that the changes use, from 1 to the number of channels. Changes
    are taken as they are, without centring, so strong edits count more. None if nothing changes."""


@threadpool_limits.wrap(1, user_api="blas")  # waiting for each other, its threads burn more time than they save here
def measure(table: FeatureTable, n_edits: int = 1) -> FeatureStatistics:
    """Read the table once, a block of pairs at a time, and sum in float64.

    The effective rank is that of PAIRS_OF_RANK pairs at equal distances in the table, or of all pairs if there are no
    more than these.

    Args:
        table: The features, in memory or in a store.
        n_edits: The edits of each pair. With two, the cells of the table are combinations of cells.
    """
    n_pairs, n_patches, n_channels = table.source.shape
    edited = np.array(table.grid.edited_supports(n_edits))[table.cell]
    of_rank = np.unique(np.linspace(0, n_pairs - 1, min(n_pairs, PAIRS_OF_RANK)).astype(int))
    source = change = inside = 0.0
    moments = np.zeros((n_channels, n_channels))
    for start in range(0, n_pairs, PAIRS_AT_ONCE):
        rows = slice(start, start + PAIRS_AT_ONCE)
        source += float(np.sum(_squares(table.source[rows].astype(np.float64))))
        delta = table.delta[rows].astype(np.float64)
        by_patch = _squares(delta)
        change += float(np.sum(by_patch))
        if table.region is not None:
            covered = np.einsum("pns,ps->pn", table.region[rows].astype(np.float64), edited[rows])
            inside += float(np.sum(covered * by_patch))
        tokens = delta[of_rank[(of_rank >= start) & (of_rank < rows.stop)] - start].reshape(-1, n_channels)
        moments += tokens.T @ tokens
    size = n_pairs * n_patches * n_channels
    return FeatureStatistics(
        source_rms=_rounded(math.sqrt(source / size)),
        delta_rms=_rounded(math.sqrt(change / size)),
        change_inside=_rounded(inside / change) if change and table.region is not None else None,
        effective_rank=_rounded(effective_rank(moments)) if moments.any() else None,
    )


def effective_rank(moments: Float[np.ndarray, "channels channels"]) -> float:
    """exp of the entropy of the normalised eigenvalues of a symmetric matrix without negative eigenvalues."""
    eigenvalues = np.maximum(np.linalg.eigvalsh(moments), 0)
    shares = eigenvalues / eigenvalues.sum()
    return float(np.exp(-np.sum(shares * np.log(shares, where=shares > 0, out=np.zeros_like(shares)))))


def statistics_of(table: FeatureTable, n_edits: int = 1) -> Json:
    """The statistics that a store keeps of its table, or those of the table itself, as JSON."""
    return table.provenance.get("statistics") or measure(table, n_edits)._asdict()


def _squares(tokens: Float[np.ndarray, "pairs patches channels"]) -> Float[np.ndarray, "pairs patches"]:
    """The squared length of every token."""
    return np.einsum("pnd,pnd->pn", tokens, tokens)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
