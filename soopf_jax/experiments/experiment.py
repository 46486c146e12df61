"""An experiment is a record of functions. `held_out` and `two_edits` define one each, and `run` carries them out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import Objective
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.stats import FitStats
from soopf_jax.fitting.unfinished import Columns
from soopf_jax.grid import Grid
from soopf_jax.scoring.score import FitScores
from soopf_jax.types import Assignment, FeatureTable, Json, Readout


class Parts(NamedTuple):
    """What is trained: names, addresses `package.module:attr`, or values."""

    readout: str | Readout = "soopf"
    assignments: Sequence[str | Assignment] | None = None
    """One arm each. None: those of the paper, or of a probe."""
    objective: str | Objective | None = None
    """None: core; for a probe native."""
    weights: Mapping[str, float] | None = None
    """Other weights for terms of the objective."""


class Data(NamedTuple):
    """The features of a run."""

    table: FeatureTable
    """The pairs to train on."""
    test: FeatureTable | None = None
    """The pairs to test on, if they are in another table."""


class TrainedArm(NamedTuple):
    """All fits of one arm after training."""

    fits: Fits
    columns: Columns
    """The results of training, a row per fit."""
    stats: FitStats
    """The columns that scores are made of."""
    scores: FitScores


@dataclass(frozen=True)
class Experiment:
    """Which fits are trained, and what is read from them."""

    name: str
    """The value of --edits, recorded in a result's config; the key of its rows in `scoring.metrics`."""
    paper_size: tuple[int, int, int]
    """The paper's seeds, restarts and steps."""
    test_edits: int | None
    """Edits of each test pair. None: there is no table of test pairs; fits are tested on their held-out cell."""
    make_arms: Callable[[Parts], list[Arm]]
    """The arms of a run; raises a UserError if the experiment cannot test them."""
    check: Callable[[Data], None]
    """Raises a UserError unless the features have what the experiment needs."""
    make_fits: Callable[[Grid, Protocol], Fits]
    """Every fit of an arm."""
    batch_size: Callable[[FeatureTable, Protocol], int]
    """Pairs that a fit counts in a step."""
    score_arm: Callable[[dict[str, Any], TrainedArm, Data], tuple[dict[str, Any], Columns]]
    """(record of an arm, the arm, data) -> the record with the experiment's own scores, and further columns of
    fits.npz."""
    main_score: Callable[[Json], float | None]
    """The score of an arm's record that is undefined where the arm is incomplete."""
    tests: Callable[[Sequence[Json]], list[dict[str, Any]]]
    """Tests between the arms, from their records."""

    def label(self, protocol: Protocol) -> str:
        """`full` for the paper's size, `quick` for ours, else `custom`."""
        return protocol.label_beside(self.paper_size)
