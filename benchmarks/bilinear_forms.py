"""Which bilinear carrier fits? The paper names one and gives no equation. This compares several forms.

    python -m benchmarks.bilinear_forms [--dataset NAME] [--encoder NAME] [--json FILE]

prints validation accuracy on observed cells and INJ of every form, with factorial assignment and the quick protocol. A
form that cannot read the cells that it was trained on is unlikely to be the paper's.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import normal
from jaxtyping import Array, Float, PyTree

import soopf_jax as soopf
from soopf_jax.readouts.bilinear import scaled_softplus
from soopf_jax.readouts.innovation import layer_norm, salience, unit_scale
from soopf_jax.report.tables import Table, text
from soopf_jax.runtime import cli
from soopf_jax.runtime.text import number
from soopf_jax.types import Dims, Json, PairView, Readout, ReadoutOutput

Factor = Float[Array, "patches values"]
"""A number for every patch and every support, or every operation."""
Form = Callable[[Factor, Factor, Float[Array, " patches"]], Float[Array, "supports operations"]]
"""(position factor, content factor, salience) -> energy."""

FORMS: Mapping[str, Form] = {
    "softplus(sum_n w_n a_sn b_on): bilinear": lambda a, b, w: scaled_softplus((a * w[:, None]).T @ b),
    "sum_n w_n softplus(a_sn) softplus(b_on): bilinear-positive": lambda a, b, w: (
        (jax.nn.softplus(a) * w[:, None]).T @ jax.nn.softplus(b)
    ),
    "softplus(sum_n w_n a_sn) softplus(sum_n w_n b_on)": lambda a, b, w: jnp.outer(
        jax.nn.softplus(w @ a), jax.nn.softplus(w @ b)
    ),
    "sum_n w_n softmax_s(a_sn) softplus(b_on)": lambda a, b, w: (
        (jax.nn.softmax(a, axis=1) * w[:, None]).T @ jax.nn.softplus(b)
    ),
    "exp(sum_n w_n (a_sn + b_on))": lambda a, b, w: jnp.outer(jax.nn.softmax(w @ a), jax.nn.softmax(w @ b)),
}
"""The forms by their equations: a_sn = <a_s, W_z z_n + p_n>, b_on = <b_o, V LN(delta_n)>, w = salience."""


class Bilinear(nn.Module):
    """A position factor and a content factor of every patch, and the energy that a form makes of them."""

    dims: Dims
    form: Form

    @nn.compact
    def __call__(self, pair: tuple[Array, Array, Array]) -> Float[Array, "supports operations"]:
        """The energy of one pair."""
        source, content, weights = pair
        dims, width = self.dims, self.dims.router_width
        w_z = self.param("W_z", normal(dims.channels**-0.5), (dims.channels, width))
        p = self.param("p", normal(0.02), (dims.patches, width))
        v = self.param("V", normal(dims.channels**-0.5), (dims.channels, width))
        a = self.param("a", normal(width**-0.5), (dims.supports, width))
        b = self.param("b", normal(width**-0.5), (dims.operations, width))
        # <W_z z + p, a> = <z, W_z^T a> + <p, a> takes far fewer multiplications
        return self.form(source @ (w_z @ a.T) + p @ a.T, content @ (v @ b.T), weights)


def prepare(pair: PairView) -> tuple[Array, Array, Array]:
    """The source, LN(delta) and the salience of one pair."""
    delta = unit_scale(pair.delta)
    return pair.source.astype(jnp.float32), layer_norm(delta), salience(delta)


def readout(form: Form) -> Readout:
    """A form as a readout."""

    def init(key: jax.Array, dims: Dims) -> PyTree:
        tokens = jnp.zeros((dims.patches, dims.channels))
        return Bilinear(dims, form).init(key, (tokens, tokens, tokens[:, 0]))["params"]

    def apply(params: PyTree, pair: tuple[Array, Array, Array], tau: Float[Array, ""]) -> ReadoutOutput:
        del tau
        (channels, width), patches = params["W_z"].shape, len(params["p"])
        dims = Dims(patches, channels, len(params["a"]), len(params["b"]), router_width=width)
        return ReadoutOutput(Bilinear(dims, form).apply({"params": params}, pair))

    return Readout(prepare, init, apply)


@dataclass(frozen=True)
class Forms:
    """Compare forms of the bilinear carrier."""

    dataset: str = "shapes3d-lite"
    """The data set."""
    encoder: str = "pixels"
    """The encoder."""
    pairs_per_cell: int = 100
    """Pairs of each cell."""
    json: str = ""
    """Also write the scores to this file."""


def run(asked: Forms) -> None:
    """Train every form and print the table."""
    found = {"forms": scores(asked)}
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=1) + "\n")
    print(text(table(found)))


def scores(asked: Forms) -> Json:
    """The scores of every form, by its equation."""
    features = soopf.features(dataset=asked.dataset, encoder=asked.encoder, pairs_per_cell=asked.pairs_per_cell)
    found = {}
    for equation, form in FORMS.items():
        result = soopf.benchmark(features, readout(form), ["factorial"], protocol=soopf.QUICK)
        arm = result.arms["factorial"]
        found[equation] = {"validation": arm.validation, "inj": arm.inj.mean, "many_to_one": arm.non_injective.mean}
    return found


def table(found: Json) -> Table:
    """A row for every form."""
    rows = [(equation, *map(number, scores.values())) for equation, scores in found["forms"].items()]
    return Table("Forms of the bilinear carrier", ("energy", "validation", "INJ", "many-to-one"), rows)


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and run. Returns the exit code."""
    return cli.run(lambda: run(cli.parse(Forms, "benchmarks.bilinear_forms", args, Forms())))


if __name__ == "__main__":
    sys.exit(main())
