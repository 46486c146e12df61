"""Every experiment by its name, the value of --edits."""

from collections.abc import Mapping

from soopf_jax.experiments.experiment import Experiment
from soopf_jax.experiments.held_out import HELD_OUT
from soopf_jax.experiments.two_edits import TWO_EDITS

EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in (HELD_OUT, TWO_EDITS)}
