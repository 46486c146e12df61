"""Compares the assignments that get flat labels with each other and with `factorial`, as Markdown tables.

The question is which of them finds the grid, what that is worth on held-out cells, and what it costs.

    python -m benchmarks.assignments                                  # the comparison in docs/assignments.md
    python -m benchmarks.assignments --pairs mujoco/pixels            # one pair of data set and encoder, in minutes

Each pair is a run of `soopf_jax.bench` with its own result folder in `--out`. A second run gives `learned` as many
restarts as the search of `searched` costs. The same command continues an interrupted comparison, and finished runs are
not repeated. The output of the runs goes to stderr, the tables go to stdout.
"""

import contextlib
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from soopf_jax import bench, plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.options import Bench, check
from soopf_jax.fitting.protocol import Choices
from soopf_jax.report import tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime import cli
from soopf_jax.runtime.text import interval, number, p_value, signed
from soopf_jax.scoring.score import holm, paired_test
from soopf_jax.studies.rows import Places, placed
from soopf_jax.types import Json

DATASETS = ("shapes3d-lite", "mujoco")
VIT = "hf:../shared/encoders/vits14-imgfocus"
"""A pretrained ViT-S/14."""
SIZE = {"pixels": (5, 2, 1000, 64, 0)}
"""Seeds, restarts, steps, pairs of a minibatch, and pairs of each cell (0: all), by encoder. A trial of `searched` has
a tenth of the steps."""
SHORT = (5, 2, 300, 32, 120)
"""The same for a ViT, for which a step of the same size takes ten times as long."""
PAIRS = tuple(f"{dataset}/{encoder}" for encoder in ("pixels", "random-vit-s", VIT) for dataset in DATASETS)
LEARNED, SEARCHED = "learned", "searched"
ASSIGNMENTS = ("factorial", LEARNED, "learned-sinkhorn", "matched", SEARCHED)
EQUAL_BUDGET = "learned, equal budget"
"""`learned` with as many fit-steps as `searched` takes for its search and its fits."""
SEARCH_IN_RESTARTS = 9.6
"""What the search of `searched` costs, in fits of full length: 3 rounds of 32 fits of a tenth of the steps."""


@dataclass(frozen=True)
class Options:
    """Compare assignments on pairs of data set and encoder."""

    pairs: tuple[str, ...] = PAIRS
    """Pairs DATASET/ENCODER, named as in soopf_jax.bench."""
    assignments: tuple[str, ...] = ASSIGNMENTS
    """The assignments."""
    equal_budget: bool = True
    """Also train learned with as many fit-steps as searched takes."""
    seeds: int | None = None
    """The number of seeds for every pair. Default: 5."""
    restarts: int | None = None
    """The number of restarts for every pair. Default: 2."""
    steps: int | None = None
    """The number of steps for every pair. Default: 1,000 with pixels, 300 with any other encoder."""
    batch_size: int | None = None
    """Pairs of a minibatch. Default: 64 with pixels, 32 with any other encoder."""
    pairs_per_cell: int | None = None
    """Pairs of each cell. Default: all of them with pixels, 120 with any other encoder."""
    query_sd: float = Choices.query_sd
    """SD of the router's queries at the start, as in soopf_jax.bench."""
    out: str = "runs/assignments"
    """The folder for the result folders."""


class Compared(NamedTuple):
    """The arms of one pair, by the names of the table, with the run that each comes from."""

    arms: Mapping[str, Json]
    runs: Mapping[str, Json]


def main(args: Sequence[str] | None = None) -> None:
    """Run all pairs that are not finished yet, then print the command and its tables."""
    arguments = list(sys.argv[1:] if args is None else args)
    options = cli.parse(Options, "benchmarks.assignments", arguments, Options())
    runs = {pair: runs_of(pair, options) for pair in options.pairs}  # reports a misspelt pair before any work
    places = Places(Path(options.out), "data")
    found = {pair: compared([document(run, places) for run in of_pair]) for pair, of_pair in runs.items()}
    print(f"`{shlex.join(['python', '-m', 'benchmarks.assignments', *arguments])}`")
    print(f"\n{tables.markdown(scores(found))}\n\n{tables.markdown(paired_tests(found))}")


def runs_of(pair: str, options: Options) -> list[Bench]:
    """The runs of one pair: all assignments, and `learned` with more restarts."""
    dataset, slash, encoder = pair.partition("/")
    if not (dataset and slash and encoder):
        raise UserError(f"a pair is DATASET/ENCODER, not '{pair}'; for example {next(iter(PAIRS))}")
    plugins.resolve("dataset", plugins.SUBSTRATES, dataset)
    plugins.resolve("encoder", plugins.ENCODERS, encoder)
    own = (options.seeds, options.restarts, options.steps, options.batch_size, options.pairs_per_cell)
    usual = SIZE.get(encoder, SHORT)
    seeds, restarts, steps, batch_size, per_cell = (
        default if given is None else given for given, default in zip(own, usual, strict=True)
    )
    several = Bench(
        *(dataset, encoder),
        assignment=options.assignments,
        seeds=seeds,
        restarts=restarts,
        steps=steps,
        pairs_per_cell=per_cell,
        choices=Choices(query_sd=options.query_sd, batch_size=batch_size),
    )
    more = replace(several, assignment=(LEARNED,), restarts=restarts + math.ceil(SEARCH_IN_RESTARTS))
    return [several, more] if options.equal_budget else [several]


def shown(pair: str) -> str:
    """The name of a pair in tables."""
    return pair.replace(VIT, "ViT-S/14")


def compared(documents: Sequence[Json]) -> Compared:
    """The arms of the results of one pair: that of all assignments, and that of `learned` with more restarts."""
    first, *more = documents
    arms = {arm["assignment"]: arm for arm in first["arms"]}
    runs_of_arms = dict.fromkeys(arms, first)
    if more:
        arms[EQUAL_BUDGET], runs_of_arms[EQUAL_BUDGET] = more[0]["arms"][0], more[0]
    return Compared(arms, runs_of_arms)


def document(run: Bench, places: Places) -> Json:
    """The result of one run, which is trained now unless it is finished already."""
    ready = check(placed(run, places))
    with contextlib.redirect_stdout(sys.stderr):
        bench.run(ready)
    return results.load(Path(str(ready.out))).document


def fit_steps(arm: Json, run: Json) -> float:
    """The fit-steps of one fold: those of its restarts, and those of the trials before them."""
    protocol = run["config"]["protocol"]
    search = arm.get("grid_search") or {"tried_steps": 0}
    return float(protocol["restarts"] * protocol["steps"] + search["tried_steps"])


def scores(compared: Mapping[str, Compared]) -> Table:
    """One row per pair and assignment, and one with the chance level of each pair."""
    header = (
        "data set/encoder",
        "seeds",
        "assignment",
        "fit-steps per fold",
        "INJ",
        "95% interval",
        "gap",
        "collapse .5",
    )
    rows = []
    for pair, (arms, runs) in compared.items():
        for name, arm in arms.items():
            values = (arm["laundering_gap"], arm["collapse"]["0.5"], arm["recovery"], arm["exact_recovery"])
            cost = f"{fit_steps(arm, runs[name]):,.0f}"
            inj = (number(arm["inj"]["mean"]), interval(arm["inj"]["ci95"]))
            rows.append((shown(pair), str(len(arm["inj"]["per_seed"])), name, cost, *inj, *map(number, values)))
        chance = next(iter(runs.values()))["provenance"]["chance"]
        rows.append((shown(pair), "", "chance", "", number(chance["inj"]), "", "", "", number(chance["recovery"]), ""))
    return Table("Scores", (*header, "recovery", "exact"), rows)


def paired_tests(compared: Mapping[str, Compared]) -> Table:
    """INJ of every other assignment minus that of learned: paired t-tests over seeds, with Holm's correction."""
    contrasts = [
        (pair, name, reference)
        for pair, (arms, _) in compared.items()
        for name in arms
        for reference in (LEARNED, EQUAL_BUDGET)
        if reference in arms and name not in ("factorial", LEARNED, EQUAL_BUDGET)
    ]
    found = [
        paired_test(compared[pair].arms[name]["inj"]["per_seed"], compared[pair].arms[reference]["inj"]["per_seed"])
        for pair, name, reference in contrasts
    ]
    corrected = holm([test["p"] for test in found])
    rows = [
        (
            shown(pair),
            f"{name} - ({reference})",
            str(test["n"]),
            signed(test["mean_diff"]),
            number(test["t"], 2),
            p_value(test["p"]),
            p_value(p_holm),
        )
        for (pair, name, reference), test, p_holm in zip(contrasts, found, corrected, strict=True)
    ]
    header = ("data set/encoder", "difference in INJ", "seeds", "mean", "t", "p", "p (Holm, all rows)")
    return Table("Paired t-tests over seeds", header, rows)


if __name__ == "__main__":
    sys.exit(cli.run(main, interrupted="interrupted; run the same command again to go on"))
