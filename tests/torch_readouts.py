"""The paper's other readouts in plain PyTorch, float64, one pair at a time: independent witnesses of the JAX ones.

Written from the paper (Dense Carrier Baseline, Comparators) and our choices where it is silent, in the plainest form:
sums over patches and slots are loops, and nothing is shared with the JAX readouts but the names of their parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Parameters = Mapping[str, Any]
"""Tensors by name, nested as in the JAX readout."""


class Pair(NamedTuple):
    """One pair with all its labels; each readout looks at what the paper gives it."""

    source: Float[Tensor, "patches channels"]
    delta: Float[Tensor, "patches channels"]
    region: Float[Tensor, "patches supports"]
    support: int
    operation: int


class Output(NamedTuple):
    energy: Float[Tensor, "supports operations"]
    masks: Float[Tensor, "supports patches"] | None = None


# --------------------------------------------------------------------------------------------- pieces


def in_own_units(delta: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Delta over the pair's root mean square, so that no epsilon depends on the encoder's scale."""
    rms = delta.square().mean().sqrt()
    return delta / rms if rms > 0 else delta


def layer_norm(token: Float[Tensor, "d"]) -> Float[Tensor, "d"]:
    """Without affine; epsilon 1e-5."""
    centred = token - token.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt()


def salience(delta: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """The squared norm of each token of delta, over its sum over the pair."""
    squares = torch.stack([token.square().sum() for token in delta])
    return squares / squares.sum() if squares.sum() > 0 else squares


def linear(layer: Parameters, x: Float[Tensor, "inputs"]) -> Float[Tensor, "outputs"]:
    """A layer as Flax stores it: kernel [inputs, outputs]."""
    return sum(x[i] * layer["kernel"][i] for i in range(len(x))) + layer["bias"]


def position(parameters: Parameters, token: Float[Tensor, "d"], n: int) -> Float[Tensor, "r"]:
    """u_n = W_z z_src,n + p_n."""
    return parameters["W_z"].T @ token + parameters["p"][n]


def grid_of(rows: Sequence[Sequence[Tensor]]) -> Float[Tensor, "s o"]:
    return torch.stack([torch.stack(list(row)) for row in rows])


# ------------------------------------------------------------------------------------------- carriers


def dense(parameters: Parameters, pair: Pair) -> Output:
    """E_so = sum_n M_sn sum_c softplus(W_oc) delta_nc^2, with squares that sum to one over the pair."""
    router, W = parameters["router"], parameters["W"]
    squares = pair.delta.square()
    squares = squares / squares.sum() if squares.sum() > 0 else squares
    columns = []
    for n, token in enumerate(pair.source):
        u = position(router, token, n)
        columns.append(functional.softmax(torch.stack([u @ q_s for q_s in router["q"]]), dim=0))
    M = torch.stack(columns, dim=1)
    energy = [
        [sum(M[s, n] * (functional.softplus(W_o) * squares[n]).sum() for n in range(len(squares))) for W_o in W]
        for s in range(len(router["q"]))
    ]
    return Output(grid_of(energy), M)


def bilinear(parameters: Parameters, pair: Pair) -> Output:
    """E_so = softplus(sum_n w_n (a_s . u_n)(b_o . V LN(delta_n))), w = normalised salience."""
    delta, w = in_own_units(pair.delta), salience(pair.delta)
    u = [position(parameters["position"], token, n) for n, token in enumerate(pair.source)]
    content = [parameters["V"].T @ layer_norm(token) for token in delta]
    energy = [
        [
            functional.softplus(sum(w[n] * (a_s @ u[n]) * (b_o @ content[n]) for n in range(len(w))))
            for b_o in parameters["b"]
        ]
        for a_s in parameters["position"]["q"]
    ]
    return Output(grid_of(energy))


def bilinear_positive(parameters: Parameters, pair: Pair) -> Output:
    """E_so = sum_n w_n softplus(a_s . u_n) softplus(b_o . V LN(delta_n)), w = normalised salience."""
    delta, w, soft = in_own_units(pair.delta), salience(pair.delta), functional.softplus
    u = [position(parameters["position"], token, n) for n, token in enumerate(pair.source)]
    content = [parameters["V"].T @ layer_norm(token) for token in delta]
    energy = [
        [sum(w[n] * soft(a_s @ u[n]) * soft(b_o @ content[n]) for n in range(len(w))) for b_o in parameters["b"]]
        for a_s in parameters["position"]["q"]
    ]
    return Output(grid_of(energy))


# --------------------------------------------------------------------------------------------- probes


def mlp(parameters: Parameters, pair: Pair) -> Output:
    """Two layers on mean-pooled delta; the energy is the outer product of the two heads' posteriors."""
    delta = pair.delta
    pooled = sum(delta[n] for n in range(len(delta))) / len(delta)
    hidden = functional.gelu(linear(parameters["hidden"], pooled))
    support = functional.softmax(linear(parameters["support"], hidden), dim=0)
    operation = functional.softmax(linear(parameters["operation"], hidden), dim=0)
    return Output(torch.outer(support, operation))


def attention(parameters: Parameters, pair: Pair) -> Output:
    """Each head attends over the tokens of delta with its own query and reads what it pooled with a linear layer.

    The paper leaves the scale of the scores open: here <query, token> / sqrt(D), of tokens as they are.
    """
    tokens = list(pair.delta)
    posterior = {}
    for head in ("support", "operation"):
        query = parameters[head]["query"]
        weight = functional.softmax(torch.stack([query @ token for token in tokens]) / len(query) ** 0.5, dim=0)
        pooled = sum(weight[n] * tokens[n] for n in range(len(tokens)))
        posterior[head] = functional.softmax(linear(parameters[head]["out"], pooled), dim=0)
    return Output(torch.outer(posterior["support"], posterior["operation"]))


def oracle(parameters: Parameters, pair: Pair) -> Output:
    """Delta pooled over the true region, an operation head; all energy on the true support."""
    delta, share = pair.delta, pair.region[:, pair.support]
    pooled = sum(share[n] * delta[n] for n in range(len(delta))) / share.sum()
    hidden = functional.gelu(linear(parameters["hidden"], pooled))
    operation = functional.softmax(linear(parameters["operation"], hidden), dim=0)
    nothing = torch.zeros_like(operation)
    return Output(torch.stack([operation if s == pair.support else nothing for s in range(pair.region.shape[1])]))


def scaled(probe: Callable[[Parameters, Pair], Output]) -> Callable[[Parameters, Pair], Output]:
    """The same probe on delta in the pair's own units."""
    return lambda parameters, pair: probe(parameters, pair._replace(delta=in_own_units(pair.delta)))


READOUTS: Mapping[str, Callable[[Parameters, Pair], Output]] = {
    "dense": dense,
    "bilinear": bilinear,
    "bilinear-positive": bilinear_positive,
    "mlp": mlp,
    "attention": attention,
    "oracle": oracle,
    "mlp-scaled": scaled(mlp),
    "attention-scaled": scaled(attention),
    "oracle-scaled": scaled(oracle),
}

# ------------------------------------------------------------------------------------------ objectives


def core_loss(outputs: Sequence[Output], Q: Float[Tensor, "k c"], y: Sequence[int]) -> Float[Tensor, ""]:
    """L_cell + L_mask; Q has a row for each observed label, y are labels of observed pairs."""
    L_cell = torch.tensor(0.0, dtype=torch.float64)
    for output, label in zip(outputs, y, strict=True):
        total = output.energy.sum()
        sh = output.energy.flatten() / total if total > 0 else torch.full_like(Q[0], 1 / Q.shape[1])
        L_cell = L_cell - functional.log_softmax(10 * Q @ sh, dim=0)[label] / len(y)
    if outputs[0].masks is None:
        return L_cell
    usage = torch.stack([output.masks.mean(dim=1) for output in outputs]).mean(dim=0)
    return L_cell + (usage * usage.log()).sum()


def native_loss(outputs: Sequence[Output], pairs: Sequence[Pair]) -> Float[Tensor, ""]:
    """CE(support) + CE(operation) of the two posteriors, which are the marginals of their outer product."""
    losses = [
        -output.energy.sum(dim=1)[pair.support].log() - output.energy.sum(dim=0)[pair.operation].log()
        for output, pair in zip(outputs, pairs, strict=True)
    ]
    return torch.stack(losses).mean()
