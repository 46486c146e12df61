"""Do balanced columns help a learned Q? Factorial, learned and learned-sinkhorn under one protocol, as Markdown tables.

    python -m benchmarks.assignments                                  # the comparison in the README
    python -m benchmarks.assignments --pairs mujoco/pixels --quick    # one pair of data set and encoder, in minutes

Each pair is a run of `soopf_jax.bench` with its own result folder below `--out`: an interrupted comparison goes on
where it stopped, and what is done is shown at once. What the runs print goes to stderr, the tables to stdout.
"""

import contextlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from soopf_jax import bench, cli, plugins, results
from soopf_jax.errors import UserError
from soopf_jax.protocol import PAPER, QUICK
from soopf_jax.report import tables
from soopf_jax.report.tables import Table, number
from soopf_jax.types import Json

PAIRS: Mapping[str, tuple[int, int, int]] = {
    "shapes3d-lite/pixels": PAPER,
    "mujoco/pixels": PAPER,
    "shapes3d-lite/random-vit-s": (5, 2, 500),
    "mujoco/random-vit-s": (5, 2, 500),
}
"""Seeds, restarts and steps of each pair: fewer where a step has 40 times the work of one on Shapes3D's pixels."""
LEARNED, SINKHORN = "learned", "learned-sinkhorn"
ASSIGNMENTS = ("factorial", LEARNED, SINKHORN)


@dataclass(frozen=True)
class Options:
    """Compare assignments on pairs of data set and encoder."""

    pairs: tuple[str, ...] = tuple(PAIRS)
    """DATASET/ENCODER, as soopf_jax.bench names them; one that is not listed here gets the paper's protocol."""
    quick: bool = False
    """3 seeds, 2 restarts and 500 steps for every pair; explicit values win."""
    seeds: int | None = None
    """Another number of seeds for every pair."""
    restarts: int | None = None
    """Another number of restarts for every pair."""
    steps: int | None = None
    """Another number of steps for every pair."""
    out: str = "runs/assignments"
    """The folder of the result folders."""


def main(args: Sequence[str] | None = None) -> None:
    """Run what is not done yet, then print the command and its tables."""
    arguments = list(sys.argv[1:] if args is None else args)
    options = cli.parse(Options, "benchmarks.assignments", arguments, Options())
    runs = [bench_arguments(pair, options) for pair in options.pairs]  # a misspelt pair stops before any work
    documents = {pair: document(run) for pair, run in zip(options.pairs, runs, strict=True)}
    print(f"`{shlex.join(['python', '-m', 'benchmarks.assignments', *arguments])}`")
    print(f"\n{tables.markdown(scores(documents))}\n\n{tables.markdown(paired_tests(documents))}")


def bench_arguments(pair: str, options: Options) -> list[str]:
    """The command line of soopf_jax.bench for one pair."""
    dataset, slash, encoder = pair.partition("/")
    if not (dataset and slash and encoder):
        raise UserError(f"a pair is DATASET/ENCODER, not '{pair}'; for example {next(iter(PAIRS))}")
    plugins.resolve("dataset", plugins.SUBSTRATES, dataset)
    plugins.resolve("encoder", plugins.ENCODERS, encoder)
    sizes = QUICK if options.quick else PAIRS.get(pair, PAPER)
    explicit = (options.seeds, options.restarts, options.steps)
    size = [str(default if given is None else given) for given, default in zip(explicit, sizes, strict=True)]
    folder = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{pair}-{'x'.join(size)}")
    named = {"dataset": dataset, "encoder": encoder, "seeds": size[0], "restarts": size[1], "steps": size[2]}
    flags = [f"--{name}={value}" for name, value in {**named, "out": Path(options.out) / folder}.items()]
    return [*flags, "--assignment", *ASSIGNMENTS]


def document(arguments: Sequence[str]) -> Json:
    """The result of one run, trained now or found finished."""
    run = bench.parse(arguments)
    with contextlib.redirect_stdout(sys.stderr):
        bench.run(run)
    return results.load(Path(run.out)).document


def scores(documents: Mapping[str, Json]) -> Table:
    """A row per pair and assignment, and for every pair what chance gives."""
    header = ("data set/encoder", "seeds x restarts x steps", "assignment", "INJ", "SD", "many-to-one", "recovery")
    rows = []
    for pair, run in documents.items():
        protocol, chance = run["config"]["protocol"], run["provenance"]["chance"]
        size = " x ".join(str(protocol[name]) for name in ("seeds", "restarts", "steps"))
        for arm in run["arms"]:
            inj, many_to_one = arm["inj"], arm["non_injective"]["mean"]
            values = (inj["mean"], inj["sd"], many_to_one, arm["recovery"], arm["exact_recovery"])
            collapse = number(arm["collapse"]["0.5"])
            rows.append((pair, size, arm["assignment"], *map(number, values), collapse))
        rows.append((pair, "", "chance", number(chance["inj"]), "", "", number(chance["recovery"]), "", ""))
    return Table("Scores", (*header, "exact", "collapse .5"), rows)


def paired_tests(documents: Mapping[str, Json]) -> Table:
    """INJ of learned-sinkhorn less INJ of learned: the two-sided paired t-test over seeds of each pair."""
    header = ("data set/encoder", "seeds", f"{SINKHORN} - {LEARNED}", "t", "p", "p (Holm, all tests of the run)")
    rows = []
    for pair, run in documents.items():
        test = next(t for t in run["tests"] if (t["a"], t["b"], t["score"]) == (LEARNED, SINKHORN, "inj"))
        difference, t = (None if test[name] is None else -test[name] for name in ("mean_diff", "t"))
        p_values = (number(test["p"], 4), number(test["p_holm"], 4))
        rows.append((pair, str(test["n"]), number(difference), number(t, 2), *p_values))
    return Table("Paired t-tests over seeds", header, rows)


if __name__ == "__main__":
    sys.exit(cli.run(main, interrupted="interrupted; run the same command again to go on"))
