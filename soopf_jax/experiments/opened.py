"""A run that is opened: its names are resolved and its configuration is known, and nothing is computed yet.

The command line and the Python API both open their runs here, so that equal options give equal runs.
"""

from typing import Any, NamedTuple

from soopf_jax.experiments.arms import parts_of
from soopf_jax.experiments.catalogue import EXPERIMENTS
from soopf_jax.experiments.experiment import Data, Experiment, Parts
from soopf_jax.experiments.inputs import Given, Inputs, open_inputs, recorded
from soopf_jax.experiments.options import Bench
from soopf_jax.experiments.results import Result
from soopf_jax.experiments.run import run_experiment
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.fitting.train import Session
from soopf_jax.runtime.progress import ProgressBar


class OpenedRun(NamedTuple):
    """What is trained, on which features, and how."""

    experiment: Experiment
    parts: Parts
    inputs: list[Inputs]
    protocol: Protocol
    router: bool
    config: dict[str, Any]
    """What result.json records of the options."""

    def load(self, progress: ProgressBar | None = None) -> Data:
        """The features, from the cache or computed now."""
        return Data(*(opened.load(progress) for opened in self.inputs))

    def train(self, data: Data, session: Session) -> Result:
        """Train and score every arm."""
        return run_experiment(self.experiment, data, self.parts, self.protocol, session, self.router)


def open_run(bench: Bench, given: Given | None = None, parts: Parts | None = None) -> OpenedRun:
    """Open a run.

    Args:
        bench: The options.
        given: Features, a data set or an encoder that are values and not names.
        parts: What is trained, if some of it is a value and not a name.

    Raises:
        UserError: A name is unknown, or the data set or the encoder cannot be opened.
    """
    given, parts = given or Given(), parts or parts_of(bench)
    experiment = EXPERIMENTS[bench.edits]
    arms = experiment.make_arms(parts)  # unknown names fail before any work
    inputs = open_inputs(bench, experiment.test_edits, given)
    config = recorded(bench, inputs) | dict(given.names)
    config |= {
        "readout": arms[0].readout_name,
        "assignment": [arm.assignment_name for arm in arms],
        "objective": arms[0].objective_name,
    }
    return OpenedRun(experiment, parts, inputs, bench.protocol, bench.router, config)
