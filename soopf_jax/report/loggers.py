"""A finished run in an experiment logger: trackio, wandb, or any module with their `init`, `log` and `finish`.

In: the name of a logger and a result. The run is logged when it is done, all at once, so that an interrupted run that
is continued is logged once, and that nothing which a logger does can touch the training. What a logger prints goes to
stderr. A logger that fails costs a line of warning and nothing else.
"""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from soopf_jax import plugins
from soopf_jax.experiments.naming import encoder_of, without_folder
from soopf_jax.experiments.results import Result
from soopf_jax.report.plots import selected
from soopf_jax.runtime.hashing import digest, slug
from soopf_jax.runtime.text import printable
from soopf_jax.scoring import metrics
from soopf_jax.types import Json

PROJECT = "soopf_jax"
UNLESS_SET = {"WANDB_MODE": "offline"}
"""Environment variables that a logger gets if the user has not set them: nothing leaves the machine unasked."""


def log(name: str, result: Result) -> None:
    """Send a finished run to a logger: configuration and provenance, training curves and the scores of every arm.

    Args:
        name: A key of `plugins.LOGGERS`.
        result: The run.
    """
    if name == plugins.NO_LOGGER:
        return
    for variable, value in UNLESS_SET.items():
        os.environ.setdefault(variable, value)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            init, send, finish = (plugins.load(f"{plugins.LOGGERS[name]}:{part}") for part in ("init", "log", "finish"))
            init(project=PROJECT, name=name_of(result.document), config=config_of(result.document))
            for step, values in history(result).items():
                send(values, step=step)
            finish()
    except Exception as error:  # whatever a logger, its server or the network may raise
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        print(
            printable(f"warning: {name} did not log the whole run ({first}); the result itself is complete"),
            file=sys.stderr,
        )


def name_of(document: Json) -> str:
    """What the run is called in the logger: data, encoder, readout and a hash of the configuration."""
    config = document["config"]
    data = config.get("features") or config.get("dataset", "table")
    words = (without_folder(str(data)), without_folder(encoder_of(config)), document["arms"][0]["readout"])
    return f"{slug(' '.join(words))}-{digest(config)[:10]}"


def config_of(document: Json) -> dict[str, Any]:
    """The configuration as result.json has it, with the label of the protocol, provenance and warnings beside it."""
    beside = {"protocol_label": document["protocol"]}
    return {**document["config"], **beside, **{name: document[name] for name in ("provenance", "warnings")}}


def history(result: Result) -> dict[int, dict[str, float]]:
    """Values by training step: the median loss of every arm's selected fits and, at the last step, its scores."""
    steps = int(result.document["config"]["protocol"]["steps"])
    found: dict[int, dict[str, float]] = {}
    for number, arm in enumerate(result.document["arms"]):
        loss = selected(result, number, "loss") if "loss" in result.fits else np.empty((0, 0))
        ends = np.rint(np.linspace(0, steps, loss.shape[1] + 1)[1:]).astype(int).tolist() if len(loss) else []
        for end, value in zip(ends, np.median(loss, axis=0).tolist() if ends else (), strict=True):
            found.setdefault(end, {})[f"{arm['assignment']}/loss"] = value
    last = found.setdefault(steps, {})
    for arm in result.document["arms"]:
        last |= {f"{arm['assignment']}/{name}": value for name, value in scores_of(arm).items()}
    return dict(sorted(found.items()))


def scores_of(arm: Json) -> Mapping[str, float]:
    """Every score of an arm that is a number, under its name in the leaderboard's CSV file or in result.json."""
    rows = (row for kind in metrics.METRICS.values() for row in kind)
    scores: dict[str, Any] = {name: value for row in rows for name, value in row.csv(arm).items()}
    scores |= {name: score["mean"] for name, score in arm.get("two_edits", {}).items()}
    scores |= {name: arm[name] for name in ("validation", "failed_fits")}
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}
