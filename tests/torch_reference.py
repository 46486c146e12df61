"""The paper's equations in plain PyTorch, float64, one fit at a time: the independent witness of the JAX program.

Written from the paper (Metric, Method, Objectives) and our choices where it is silent, in the paper's order and with
none of the rearrangements that make the benchmark fast: the router projects every token, every call normalises every
delta, Q has a row for each observed label only, and a held-out pair never enters a loss.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

SUPPORTS, OPERATIONS = 3, 3
CELLS = SUPPORTS * OPERATIONS

Parameters = Mapping[str, Tensor]
"""W_z [R, D], p [N, R], q [S, R]; f: W_1 [64, D], b_1, W_2 [O, 64], b_2; under learned Q also a [K, S*O]."""


class Pairs(NamedTuple):
    """Some pairs with their flat labels in 0..S*O-1."""

    source: Float[Tensor, "pairs patches channels"]
    delta: Float[Tensor, "pairs patches channels"]
    label: Int[Tensor, "pairs"]


def observed(held_out: int) -> list[int]:
    """The labels that a fold trains on, in order; all of them where `held_out` is -1."""
    return [label for label in range(CELLS) if label != held_out]


def training_pairs(pairs: Pairs, held_out: int) -> Pairs:
    """The pairs of observed labels, with labels compressed to 0..K-1."""
    kept = pairs.label != held_out
    compressed = [observed(held_out).index(label) for label in pairs.label[kept].tolist()]
    return Pairs(pairs.source[kept], pairs.delta[kept], torch.tensor(compressed))


# --------------------------------------------------------------------------------------------- readout


def masks(parameters: Parameters, source: Float[Tensor, "b n d"]) -> Float[Tensor, "b s n"]:
    """M_sn = softmax over s of <W_z z_src,n + p_n, q_s>."""
    tokens = source @ parameters["W_z"].T + parameters["p"]
    return functional.softmax(tokens @ parameters["q"].T, dim=-1).transpose(1, 2)


def energy(
    parameters: Parameters, source: Float[Tensor, "b n d"], delta: Float[Tensor, "b n d"], tau: float
) -> Float[Tensor, "b s o"]:
    """E_so = A_s pi_so, with every quantity of delta in units of the pair's own root mean square."""
    rms = delta.square().mean(dim=(1, 2), keepdim=True).sqrt()
    delta = delta / torch.where(rms > 0, rms, 1.0)
    sal = torch.linalg.vector_norm(delta, dim=-1).square()
    total = sal.sum(dim=1, keepdim=True)
    sal = sal / torch.where(total > 0, total, 1.0)

    M = masks(parameters, source)
    A = (M * sal[:, None, :]).sum(dim=-1)
    normalised = functional.layer_norm(delta, delta.shape[-1:], eps=1e-5)
    h = torch.einsum("bsn,bn,bnd->bsd", M, sal, normalised) / A.clamp(min=1e-12)[..., None]
    hidden = functional.gelu(functional.linear(h, parameters["W_1"], parameters["b_1"]))
    pi = functional.softmax(functional.linear(hidden, parameters["W_2"], parameters["b_2"]) / tau, dim=-1)
    return A[..., None] * pi


def share(E: Float[Tensor, "b s o"]) -> Float[Tensor, "b c"]:
    """sh, the normalised energy; uniform where there is none."""
    total = E.sum(dim=(1, 2), keepdim=True)
    return torch.where(total > 0, E / torch.where(total > 0, total, 1.0), 1 / CELLS).flatten(1)


# ----------------------------------------------------------------------------------------- assignments


def factorial(parameters: Parameters, held_out: int) -> Float[Tensor, "k c"]:
    """Row y is one-hot at the true grid location of the y-th observed cell."""
    return torch.eye(CELLS, dtype=torch.float64)[observed(held_out)]


def learned(parameters: Parameters, held_out: int) -> Float[Tensor, "k c"]:
    """Row y is softmax(a_y)."""
    return functional.softmax(parameters["a"], dim=-1)


def compressed(parameters: Parameters, held_out: int) -> Float[Tensor, "k c"]:
    """Observed label y maps to column y, whatever is held out."""
    return torch.eye(CELLS, dtype=torch.float64)[: len(observed(held_out))]


ASSIGNMENTS: Mapping[str, Callable[[Parameters, int], Tensor]] = {
    "factorial": factorial,
    "learned": learned,
    "compressed": compressed,
}

# ------------------------------------------------------------------------------------------- objective


def cell_logits(E: Float[Tensor, "b s o"], Q: Float[Tensor, "k c"]) -> Float[Tensor, "b k"]:
    """10 sh Q^T."""
    return 10 * share(E) @ Q.T


def mask_loss(M: Float[Tensor, "b s n"]) -> Float[Tensor, ""]:
    """Negative entropy of the mean support usage."""
    usage = M.mean(dim=(0, 2))
    return (usage * usage.log()).sum()


def core_loss(parameters: Parameters, assignment: str, pairs: Pairs, held_out: int, tau: float) -> Float[Tensor, ""]:
    """L_cell + L_mask of one batch; its pairs of the held-out label are left out."""
    source, delta, y = training_pairs(pairs, held_out)
    Q = ASSIGNMENTS[assignment](parameters, held_out)
    L_cell = functional.cross_entropy(cell_logits(energy(parameters, source, delta, tau), Q), y)
    return L_cell + mask_loss(masks(parameters, source))


def temperature(step: int, steps: int) -> float:
    """Tau at a step: linear from 2.0 at the first to 0.5 at the last."""
    return 2.0 - 1.5 * step / (steps - 1)


def train(parameters: Parameters, assignment: str, batches: Iterable[Pairs], steps: int, held_out: int) -> Parameters:
    """Adam 5e-3 on the core loss, from `parameters`, one step for each of the `steps` batches."""
    fitted = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    adam = torch.optim.Adam(fitted.values(), lr=5e-3)
    for step, pairs in zip(range(steps), batches, strict=True):
        adam.zero_grad()
        core_loss(fitted, assignment, pairs, held_out, temperature(step, steps)).backward()
        adam.step()
    return {name: value.detach() for name, value in fitted.items()}


# ------------------------------------------------------------------------------------------ evaluation


def flat_cell_accuracy(parameters: Parameters, assignment: str, pairs: Pairs, held_out: int, tau: float = 0.5) -> float:
    """Share of the observed pairs whose largest cell logit is their label's."""
    source, delta, y = training_pairs(pairs, held_out)
    logits = cell_logits(energy(parameters, source, delta, tau), ASSIGNMENTS[assignment](parameters, held_out))
    return float((logits.argmax(dim=-1) == y).double().mean())


def alignment_matrices(
    parameters: Parameters, pairs: Pairs, cell: Int[Tensor, "pairs"], held_out_cell: int, normalised: bool
) -> tuple[Float[Tensor, "s s"], Float[Tensor, "o o"]]:
    """C_sup and C_op: mean marginals of E or sh per true support and true operation, over pairs of observed cells.

    E is in the paper's scale: its saliences sum to the pair's squared change.
    """
    grid_share = share(energy(parameters, pairs.source, pairs.delta, 0.5)).reshape(-1, SUPPORTS, OPERATIONS)
    if not normalised:
        grid_share = grid_share * pairs.delta.square().sum(dim=(1, 2))[:, None, None]
    kept = cell != held_out_cell
    support, operation = cell // OPERATIONS, cell % OPERATIONS
    C_sup = [grid_share[kept & (support == v)].sum(dim=2).mean(dim=0) for v in range(SUPPORTS)]
    C_op = [grid_share[kept & (operation == v)].sum(dim=1).mean(dim=0) for v in range(OPERATIONS)]
    return torch.stack(C_sup), torch.stack(C_op)


def argmax_counts(parameters: Parameters, pairs: Pairs, tau: float = 0.5) -> Int[Tensor, "c"]:
    """How many of the pairs have their joint argmax at each energy slot."""
    slot = energy(parameters, pairs.source, pairs.delta, tau).flatten(1).argmax(dim=-1)
    return torch.bincount(slot, minlength=CELLS)
