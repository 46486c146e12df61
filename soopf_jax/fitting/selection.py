"""One restart of each fold counts: the best on validation pairs. A result may keep more of it than its scores."""

import numpy as np
from jaxtyping import Bool, Float

from soopf_jax.fitting.protocol import Fits

NOTHING, PREDICTIONS, EVERYTHING = KEEP = ("none", "predictions", "all")
"""What a result can keep of a selected fit: only its scores, the energies of every pair too, or its parameters too."""


def best_restarts(
    fits: Fits, validation: Float[np.ndarray, " fits"], failed: Bool[np.ndarray, " fits"], ties: str = "first"
) -> Bool[np.ndarray, " fits"]:
    """The restart with the best validation accuracy of each fold: the first or last on ties, never a failed one."""
    validation = np.where(failed, -np.inf, validation)
    selected = np.zeros(len(validation), bool)
    for fold in np.unique(np.stack([fits.seed, fits.held_out]), axis=1).T:
        rows = np.flatnonzero((fits.seed == fold[0]) & (fits.held_out == fold[1]))
        rows = rows[np.argsort(fits.restart[rows])][:: 1 if ties == "first" else -1]
        best = rows[np.argmax(validation[rows])]
        selected[best] = np.isfinite(validation[best])
    return selected
