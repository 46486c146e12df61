"""What do TF32 and bfloat16 products do to the scores? A CPU rounds the inputs of products here, as a GPU would.

    python -m benchmarks.precision [--dataset NAME] [--encoder NAME] [--json FILE]

trains the same fits with exact float32 products, with inputs rounded to the 10 bits of TF32 and to the 7 bits of
bfloat16, and accumulates in float32 in each case. It prints INJ and the difference from float32, paired over seeds.
`--matmul-precision high` and `default` let a GPU use TF32. What is not a product stays in float32, as it does there.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from soopf_jax.report.tables import Table, markdown
from soopf_jax.runtime import cli
from soopf_jax.runtime.text import number, p_value, signed
from soopf_jax.scoring.score import holm, paired_test
from soopf_jax.types import Json

MANTISSA: Mapping[str, int] = {"float32": 23, "TF32": 10, "bfloat16": 7}
"""Bits behind the point of the inputs of a product. All three have the exponent of float32."""
EXPONENT = 8
ARMS = ("factorial", "learned")
Scores = dict[str, list[float]]
"""INJ of every seed, by arm."""


@dataclass(frozen=True)
class Options:
    """Compare scores under rounded inputs of products."""

    dataset: str = "shapes3d-lite"
    """The data set."""
    encoder: str = "pixels"
    """The encoder."""
    pairs_per_cell: int = 100
    """Pairs of each cell."""
    seeds: int = 10
    """Seeds."""
    restarts: int = 2
    """Restarts of each fold."""
    steps: int = 500
    """Adam steps of each fit."""
    rounded: Annotated[str, tyro.conf.arg(metavar="float32|TF32|bfloat16")] = ""
    """Train with this rounding only, and print INJ of every seed as JSON."""
    json: str = ""
    """Also write INJ of every seed, under every rounding, to this file."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and run. Returns the exit code."""
    return cli.run(lambda: run(cli.parse(Options, "benchmarks.precision", args, Options())))


def run(asked: Options) -> None:
    """Train under every rounding, each in a process of its own, and print the table."""
    if asked.rounded:
        print(json.dumps(scores_under(asked)))
        return
    found = {"inj": {name: in_own_process(asked, name) for name in MANTISSA}}
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1) + "\n")
    print(markdown(table(found)))


def table(found: Json) -> Table:
    """INJ under every rounding, and its difference from float32, paired over seeds."""
    rounded = dict(found["inj"])
    exact = rounded.pop("float32")
    contrasts = [(name, arm) for name in rounded for arm in ARMS]
    tests = [paired_test(rounded[name][arm], exact[arm]) for name, arm in contrasts]
    rows = [("float32", arm, number(sum(exact[arm]) / len(exact[arm])), "-", "-") for arm in ARMS]
    corrected = holm([test["p"] for test in tests])
    for (name, arm), test, p in zip(contrasts, tests, corrected, strict=True):
        mean = sum(rounded[name][arm]) / len(rounded[name][arm])
        rows.append((name, arm, number(mean), signed(test["mean_diff"]), p_value(p)))
    return Table("", ("products", "assignment", "INJ", "difference", "p (Holm)"), rows)


def in_own_process(asked: Options, name: str) -> Scores:
    """The scores under one rounding. A process has compiled programs, which know one rounding only."""
    options = {**asdict(asked), "rounded": name, "json": ""}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.precision", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def scores_under(asked: Options) -> Scores:
    """INJ of every seed of every arm, with the inputs of all products rounded."""
    round_products(MANTISSA[asked.rounded])
    import soopf_jax as soopf

    protocol = soopf.Protocol(seeds=asked.seeds, restarts=asked.restarts, steps=asked.steps)
    table = soopf.features(dataset=asked.dataset, encoder=asked.encoder, pairs_per_cell=asked.pairs_per_cell)
    result = soopf.benchmark(table, "soopf", list(ARMS), protocol=protocol)
    return {arm: [cast("float", value) for value in result.arms[arm].inj.per_seed] for arm in ARMS}


def round_products(bits: int) -> None:
    """Let JAX round the inputs of every product that it compiles from now on, those of gradients included.

    The rounding enters where a product becomes code for the CPU, after all derivatives have been taken. JAX has no
    public interface for this, so the names below may be gone in another version.
    """
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo  # type: ignore[attr-defined]

    product = jax.lax.dot_general_p
    exact = mlir._platform_specific_lowerings["cpu"][product].rule

    def rounded(context: Any, *inputs: Any, **parameters: Any) -> Any:
        if all(aval.dtype == "float32" for aval in context.avals_in):
            inputs = tuple(hlo.reduce_precision(x, EXPONENT, bits) for x in inputs)
        return exact(context, *inputs, **parameters)

    mlir.register_lowering(product, rounded, platform="cpu")


if __name__ == "__main__":
    sys.exit(main())
