"""Assignments that were tried and are not offered, because they win nothing. docs/assignments.md has their scores.

    python -m benchmarks.assignments --pairs shapes3d-lite/pixels --no-equal-budget --assignments learned matched \\
        benchmarks.assignments_tried:SLOW benchmarks.assignments_tried:FROM_MATCHED

An assignment does not know the step of the training, so nothing here is annealed.
"""

from jaxtyping import Array, Float, Int, PyTree

from soopf_jax.fitting import matching
from soopf_jax.fitting.assignments import LEARNED, PLACED
from soopf_jax.grid import Grid

SLOWER = 0.2
"""The rate at which the logits of Q learn, as a share of the learning rate of all other parameters."""
CERTAINTY = 4.0
"""The logit of the proposed cell at the start: a share of 0.87 for it where 8 others have a logit of 0."""


def slow_rows(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """Row y is softmax(SLOWER a_y). Adam moves every a_y by the same amount, whatever factor is before it."""
    return LEARNED.matrix({"logits": SLOWER * params["logits"]}, held_out, grid)


def from_proposal(params: PyTree, held_out: Int[Array, ""], grid: Grid) -> Float[Array, "cells cells"]:
    """Row y is softmax(CERTAINTY q_y), in which q starts at the proposed grid and is learned."""
    return LEARNED.matrix({"logits": CERTAINTY * params["q"]}, held_out, grid)


SLOW = LEARNED._replace(matrix=slow_rows)
"""`learned` with a lower learning rate for Q."""
FROM_MATCHED = PLACED._replace(matrix=from_proposal, proposer=matching.PROPOSER)
"""`learned`, beginning at the grid of `matched`."""
