"""How often do the intervals that we print hold the true mean? Simulated runs of known models, as Markdown tables.

    python -m benchmarks.coverage                          # the tables in docs/statistics.md
    python -m benchmarks.coverage --experiments 1000       # a rougher answer, in seconds

A model says how the accuracy of a fit varies over seeds and cells. A simulated run draws fits from it, counts correct
test pairs, and asks `soopf_jax.scoring.statistics` for the interval, as a real run does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logit

from soopf_jax.report import tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime import cli
from soopf_jax.scoring import statistics
from soopf_jax.types import Json

CELLS, PAIRS_PER_CELL = 9, 350
SEEDS = (2, 3, 5, 10)
BOOTSTRAP_DRAWS = 500
PROFILE = np.array([0.65, 0.31, 0.88, 0.77, 0.23, 0.91, 0.44, 0.38, 0.98])
"""Accuracies of the nine cells of the default run with factorial assignment, about."""
NOMINAL, TOLERANCE = 95.0, 2.0
FOR_THE_MEAN = 400_000
"""Simulated seeds from which the true mean of a model is known well enough."""

Rng = np.random.Generator
Shape = tuple[int, int]
"""(experiments, seeds)"""
Accuracies = Float[np.ndarray, "experiments seeds cells"]
Model = Callable[[Rng, Shape], Accuracies]
"""The true accuracy of every fit."""


@dataclass(frozen=True)
class Options:
    """Simulate the coverage of all intervals."""

    experiments: int = 10_000
    """Simulated runs of each model and number of seeds; a tenth of them for the bootstrap."""
    seed: int = 0
    """The seed of the simulation."""


# ------------------------------------------------------------------------------------------------------- the models


def steady(accuracy: float) -> Model:
    """Seeds differ by nothing but which pairs happen to be right."""
    return lambda rng, shape: np.full((*shape, CELLS), accuracy)


def smooth(between_seeds: float, between_fits: float, shift: float = 0.0) -> Model:
    """Normal noise of seeds and of fits, on the logit scale, around the profile of cells."""

    def draw(rng: Rng, shape: Shape) -> Accuracies:
        noise = between_seeds * rng.normal(size=(*shape, 1)) + between_fits * rng.normal(size=(*shape, CELLS))
        return expit(logit(PROFILE) + shift + noise)

    return draw


def beta(mean: float, sd: float) -> Model:
    """Whole seeds differ, by a beta distribution. It is lopsided near 0 and 1."""
    size = mean * (1 - mean) / sd**2 - 1
    return lambda rng, shape: rng.beta(mean * size, (1 - mean) * size, (*shape, 1)) * np.ones(CELLS)


def collapsing(share: float, whole_seeds: bool = False, good: float = 0.95, bad: float = 0.02) -> Model:
    """Some fits, or all fits of some seeds, collapse."""

    def draw(rng: Rng, shape: Shape) -> Accuracies:
        collapsed = rng.random((*shape, 1 if whole_seeds else CELLS)) < share
        return np.where(collapsed, bad, good) * np.ones(CELLS)

    return draw


MODELS: Mapping[str, Model] = {
    "fits vary smoothly (SD 0.5 on the logit scale)": smooth(0.0, 0.5),
    "fits and seeds vary smoothly (1 and 0.3)": smooth(0.3, 1.0),
    "fits and seeds vary widely (1 and 1)": smooth(1.0, 1.0),
    "seeds: beta, mean 0.5, SD 0.05": beta(0.5, 0.05),
    "seeds: beta, mean 0.5, SD 0.2": beta(0.5, 0.2),
    "seeds: beta, mean 0.9, SD 0.05": beta(0.9, 0.05),
    "seeds: beta, mean 0.95, SD 0.05": beta(0.95, 0.05),
    "seeds: beta, mean 0.02, SD 0.02": beta(0.02, 0.02),
    "30 % of fits collapse": collapsing(0.3),
    "50 % of fits collapse": collapsing(0.5),
    "5 % of fits collapse": collapsing(0.05),
    "95 % of fits collapse": collapsing(0.95),
    "30 % of seeds collapse": collapsing(0.3, whole_seeds=True),
    "10 % of seeds collapse": collapsing(0.1, whole_seeds=True),
    "seeds do not vary, accuracy 0.5": steady(0.5),
    "seeds do not vary, accuracy 0.999": steady(0.999),
}
"""Models of one arm."""
DIFFERENCES: Mapping[str, tuple[Model, Model]] = {
    "fits and seeds vary smoothly": (smooth(0.3, 0.5, shift=0.3), smooth(0.3, 0.5)),
    "the same, without a difference": (smooth(0.3, 0.5), smooth(0.3, 0.5)),
    "beta: mean 0.95, SD 0.05, against 0.5, 0.1": (beta(0.95, 0.05), beta(0.5, 0.1)),
    "beta: mean 0.95, SD 0.05, against a steady 0.8": (beta(0.95, 0.05), steady(0.8)),
    "10 % against 30 % of fits collapse": (collapsing(0.1), collapsing(0.3)),
    "5 % of fits collapse, against a steady 0.9": (collapsing(0.05), steady(0.9)),
    "10 % of seeds collapse, against a steady 0.9": (collapsing(0.1, whole_seeds=True), steady(0.9)),
}
"""Models of two arms. Their noise is independent, which is the hardest case: pairing cancels none of it."""


# --------------------------------------------------------------------------------------------------- the simulation


class Coverage(NamedTuple):
    """What became of the intervals of many simulated runs."""

    plain: float
    """Of those that are printed as 95 %, the share in percent that hold the true mean; NaN if there are none."""
    approximate: float
    """The same, of those that are labelled as approximate."""
    labelled: float
    """The share of labelled ones among all that are printed."""

    @property
    def shown(self) -> str:
        """`95.1`, `~94.8`, or both with the share of labelled ones, unless that rounds to 0 %.

        A star marks plain intervals that hold the mean too rarely.
        """
        if np.isnan(self.plain) and np.isnan(self.approximate):
            return "none"
        star = "*" if self.plain < NOMINAL - TOLERANCE else ""
        plain = "" if np.isnan(self.plain) else f"{self.plain:.1f}{star}"
        few = bool(plain) and self.labelled < 0.5
        approximate = "" if few or np.isnan(self.approximate) else f"~{self.approximate:.1f}"
        share = f" ({self.labelled:.0f} %)" if plain and approximate else ""
        return f"{plain} {approximate}{share}".strip()


def counted(rng: Rng, accuracies: Accuracies) -> Accuracies:
    """The shares of test pairs that fits of these accuracies read correctly."""
    return rng.binomial(PAIRS_PER_CELL, accuracies) / PAIRS_PER_CELL


def coverage(records: Sequence[Json], mean: float) -> Coverage:
    """How often printed intervals hold the mean."""
    printed = [record for record in records if record["ci95"] is not None]
    holds = np.array([record["ci95"][0] <= mean <= record["ci95"][1] for record in printed], bool)
    approximate = np.array([statistics.is_approximate(record) for record in printed], bool)
    return Coverage(_percent(holds[~approximate]), _percent(holds[approximate]), _percent(approximate))


def _percent(values: Bool[np.ndarray, " some"]) -> float:
    return 100 * float(values.mean()) if len(values) else np.nan


def mean_of(model: Model, rng: Rng) -> float:
    """The true mean of a model."""
    return float(model(rng, (FOR_THE_MEAN, 1)).mean())


def of_score(model: Model, mean: float, shape: Shape, rng: Rng) -> dict[str, Coverage]:
    """The coverage of the interval of an arm's score, and of the t interval that it replaces."""
    runs = counted(rng, model(rng, shape)).mean(axis=2)
    pairs = CELLS * PAIRS_PER_CELL
    return {
        "ours": coverage([statistics.score_interval(run, pairs) for run in runs], mean),
        "t": coverage([_plain_t(run) for run in runs], mean),
    }


def _plain_t(run: Float[np.ndarray, " seeds"]) -> Json:
    """The t interval as it is, of any number of seeds and with a width of 0 where they coincide."""
    half = statistics.t_quantile(len(run) - 1) * run.std(ddof=1) / len(run) ** 0.5
    return {"ci95": [run.mean() - half, run.mean() + half]}


def of_difference(models: tuple[Model, Model], mean: float, shape: Shape, rng: Rng) -> dict[str, Coverage]:
    """The coverage of the intervals of the difference of two arms."""
    ours, theirs = (counted(rng, model(rng, shape)) for model in models)
    runs = ours - theirs
    some = runs[: max(1, len(runs) // 10)]
    return {
        "t": coverage([statistics.t_interval(run, -1.0, 1.0) for run in runs.mean(axis=2)], mean),
        "bootstrap": coverage([statistics.paired_bootstrap(run, BOOTSTRAP_DRAWS) for run in some], mean),
    }


# -------------------------------------------------------------------------------------------------------- the tables


def scores(options: Options) -> Table:
    """The coverage of the interval of a score, by model and number of seeds."""
    rng = np.random.default_rng(options.seed)
    rows = []
    for name, model in MODELS.items():
        mean = mean_of(model, rng)
        found = [of_score(model, mean, (options.experiments, n), rng) for n in SEEDS]
        old = " / ".join(f"{one['t'].plain:.0f}" for one in found)
        rows.append((name, *(one["ours"].shown for one in found), old))
    header = ("model", *(f"{n} seeds" for n in SEEDS), f"plain t at {', '.join(map(str, SEEDS))}")
    return Table("Scores", header, rows)


def differences(options: Options) -> Table:
    """The coverage of the intervals of a difference, by model and number of seeds."""
    rng = np.random.default_rng(options.seed)
    rows = []
    for name, models in DIFFERENCES.items():
        mean = mean_of(models[0], rng) - mean_of(models[1], rng)
        found = [of_difference(models, mean, (options.experiments, n), rng) for n in SEEDS]
        bootstrap = " / ".join(one["bootstrap"].shown for one in found[2:])
        rows.append((name, *(one["t"].shown for one in found), bootstrap))
    header = ("model", *(f"{n} seeds" for n in SEEDS), "bootstrap at {}, {}".format(*SEEDS[2:]))
    return Table("Differences", header, rows)


def main(args: Sequence[str] | None = None) -> None:
    """Print both tables."""
    options = cli.parse(Options, "benchmarks.coverage", args, Options())
    for table in (scores(options), differences(options)):
        print(f"{table.title}, {options.experiments:,} simulated runs each:\n\n{tables.markdown(table)}\n")


if __name__ == "__main__":
    main()
