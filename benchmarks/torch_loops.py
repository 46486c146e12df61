"""Three training loops for SO-OPF (factorial Q, core objective) in PyTorch, to compare the JAX program with.

In: a Task with the tokens, the minibatches, the held-out cells and the initial parameters of some fits. Out: a Loop
whose `step` trains. `sequential` follows the paper's equations literally and trains one fit at a time; LN and salience
may be computed in advance. `batched` is the fastest form that we found: it trains all fits at once and folds every
product. From equal initial parameters, all three take the same steps as the JAX program.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, PyTree
from torch import Tensor, nn
from torch.nn import functional

from soopf_jax.fitting.group import Group
from soopf_jax.fitting.protocol import Protocol
from soopf_jax.types import FeatureTable

Parameters = Mapping[str, Tensor]
"""W_z [R, D], p [N, R], q [S, R]; f: W_1 [H, D], b_1 [H], W_2 [O, H], b_2 [O]. Several fits are the leading axis."""


class Task(NamedTuple):
    """The fits of one seed."""

    source: Float[Tensor, "pairs patches channels"]
    delta: Float[Tensor, "pairs patches channels"]
    content: Float[Tensor, "pairs patches channels"]
    """LN(delta), for the loops that do not compute it at every step."""
    salience: Float[Tensor, "pairs patches"]
    cell: Int[Tensor, " pairs"]
    batches: Int[Tensor, "steps batch"]
    """Pairs of all cells. A fit leaves out those of its held-out cell."""
    held_out: Int[Tensor, " fits"]
    start: Parameters
    """Initial parameters, stacked over the fits."""
    tau: Callable[[int], float]
    """The temperature of a step."""
    learning_rate: float


class Loop(NamedTuple):
    """A training in progress."""

    step: Callable[[int], Float[Tensor, "*fits"]]
    """Takes the step with this number and returns the losses before it."""
    parameters: Parameters
    """The current parameters, which change with every step."""


def task_of(table: FeatureTable, group: Group, params: PyTree, protocol: Protocol) -> Task:
    """The task of the first seed of a group, with the minibatches and initial parameters of the JAX program."""
    delta = torch.from_numpy(table.delta)
    return Task(
        torch.from_numpy(table.source),
        delta,
        *innovation(delta),
        torch.from_numpy(table.cell).long(),
        torch.from_numpy(np.asarray(group.batches)[0]).long(),
        torch.from_numpy(group.held_out[0]).long(),
        paper_notation(params),
        protocol.tau,
        protocol.learning_rate,
    )


def paper_notation(params: PyTree) -> Parameters:
    """The parameters of the first seed's fits in the JAX program, with the names and shapes used here."""
    parts = params["readout"]
    router, hidden, operation = parts["router"], parts["hidden"], parts["operation"]
    named = {
        "W_z": router["W_z"].swapaxes(-1, -2),
        "p": router["p"],
        "q": router["q"],
        "W_1": hidden["weight"],
        "b_1": hidden["bias"],
        "W_2": operation["kernel"].swapaxes(-1, -2),
        "b_2": operation["bias"],
    }
    return {name: torch.tensor(np.asarray(value[0])) for name, value in named.items()}


def innovation(
    delta: Float[Tensor, "pairs patches channels"],
) -> tuple[Float[Tensor, "pairs patches channels"], Float[Tensor, "pairs patches"]]:
    """LN(delta) and sal = ||delta||^2 of every patch."""
    return functional.layer_norm(delta, delta.shape[-1:]), delta.square().sum(dim=-1)


# ------------------------------------------------------------------------------------------ one fit at a time


class SOOPF(nn.Module):
    """Eqs. (2) to (6) in the order of the paper."""

    W_z: Tensor
    p: Tensor
    q: Tensor
    W_1: Tensor
    b_1: Tensor
    W_2: Tensor
    b_2: Tensor

    def __init__(self, start: Parameters) -> None:
        super().__init__()
        for name, value in start.items():
            self.register_parameter(name, nn.Parameter(value.clone()))

    def forward(
        self,
        source: Float[Tensor, "batch patches channels"],
        content: Float[Tensor, "batch patches channels"],
        salience: Float[Tensor, "batch patches"],
        tau: float,
    ) -> tuple[Float[Tensor, "batch supports operations"], Float[Tensor, "batch patches supports"]]:
        """Energies E and masks M."""
        M = functional.softmax((source @ self.W_z.T + self.p) @ self.q.T, dim=-1)
        weights = M * salience[..., None]
        A = weights.sum(dim=1)
        h = torch.einsum("bns,bnd->bsd", weights, content) / A[..., None]
        hidden = functional.gelu(functional.linear(h, self.W_1, self.b_1))
        pi = functional.softmax(functional.linear(hidden, self.W_2, self.b_2) / tau, dim=-1)
        return A[..., None] * pi, M


def core_loss(
    E: Float[Tensor, "batch supports operations"],
    M: Float[Tensor, "batch patches supports"],
    Q: Float[Tensor, "labels cells"],
    y: Int[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """CE(10 sh Q^T, y) plus the negative entropy of the mean support usage."""
    share = E.flatten(1) / E.sum(dim=(1, 2))[:, None]
    usage = M.mean(dim=(0, 1))
    return functional.cross_entropy(10 * share @ Q.T, y) + (usage * usage.log()).sum()


def sequential(task: Task, fit: int, precomputed: bool = False) -> Loop:
    """A loop that trains one fit.

    Args:
        task: The task.
        fit: The number of the fit.
        precomputed: Whether to use the LN and salience of the task instead of computing them at every step.
    """
    held_out = int(task.held_out[fit])
    model = SOOPF({name: value[fit] for name, value in task.start.items()})
    adam = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    n_cells = len(model.q) * len(model.b_2)
    Q = torch.eye(n_cells)[torch.arange(n_cells) != held_out]
    label = task.cell - (task.cell > held_out).long()

    def step(number: int) -> Tensor:
        rows = task.batches[number]
        rows = rows[task.cell[rows] != held_out]
        prepared = (task.content[rows], task.salience[rows]) if precomputed else innovation(task.delta[rows])
        adam.zero_grad()
        E, M = model(task.source[rows], *prepared, task.tau(number))
        loss = core_loss(E, M, Q, label[rows])
        loss.backward()
        adam.step()
        return loss.detach()

    return Loop(step, dict(model.named_parameters()))


# -------------------------------------------------------------------------------------------- all fits at once


def batched(task: Task) -> Loop:
    """A loop that trains all fits on a shared minibatch. Pairs of a fit's held-out cell have weight 0."""
    parameters = {name: value.clone().requires_grad_() for name, value in task.start.items()}
    adam = torch.optim.Adam(parameters.values(), lr=task.learning_rate, fused=True)

    def step(number: int) -> Tensor:
        rows = task.batches[number]
        adam.zero_grad()
        E, usage = folded(parameters, task.source[rows], task.content[rows], task.salience[rows], task.tau(number))
        losses = masked_losses(E, usage, task.cell[rows], task.held_out)
        losses.sum().backward()
        adam.step()
        return losses.detach()

    return Loop(step, parameters)


def folded(
    parameters: Parameters,
    source: Float[Tensor, "batch patches channels"],
    content: Float[Tensor, "batch patches channels"],
    salience: Float[Tensor, "batch patches"],
    tau: float,
) -> tuple[Float[Tensor, "fits batch supports operations"], Float[Tensor, "fits batch supports"]]:
    """Energies, and masks averaged over patches.

    The supports are the first axis and the patches the last one. A softmax over three adjacent numbers would take half
    of the time of a step: with N = 196, D = 1024 and one thread, a fit-step takes 15 ms of CPU time in the order
    (batch, patches, fits, supports) and 7.5 ms in this one.
    """
    W_z, p, q, W_1, b_1, W_2, b_2 = (parameters[name] for name in ("W_z", "p", "q", "W_1", "b_1", "W_2", "b_2"))
    (batch, patches, channels), (fits, supports, _) = source.shape, q.shape
    # <W_z z + p, q> = <z, W_z^T q> + <p, q>: one product of all tokens with the folded queries of all fits.
    queries = torch.bmm(q, W_z).transpose(0, 1).reshape(supports * fits, channels)
    position = torch.bmm(q, p.transpose(1, 2)).transpose(0, 1)[:, :, None]
    logits = (queries @ source.reshape(-1, channels).T).view(supports, fits, batch, patches) + position
    M = functional.softmax(logits, dim=0)
    weights = M * salience
    A = weights.sum(dim=-1).permute(1, 2, 0)
    pooled = torch.bmm(weights.view(supports * fits, batch, patches).transpose(0, 1), content)
    pooled = pooled.view(batch, supports, fits, channels).permute(2, 0, 1, 3).reshape(fits, batch * supports, channels)
    # h = pooled / A. The division comes after the product, where there are H columns instead of D.
    hidden = functional.gelu(torch.bmm(pooled, W_1.transpose(1, 2)) / A.reshape(fits, -1, 1) + b_1[:, None])
    operation = torch.baddbmm(b_2[:, None], hidden, W_2.transpose(1, 2)).view(fits, batch, supports, -1)
    return A[..., None] * functional.softmax(operation / tau, dim=-1), M.mean(dim=-1).permute(1, 2, 0)


def masked_losses(
    E: Float[Tensor, "fits batch supports operations"],
    usage: Float[Tensor, "fits batch supports"],
    cell: Int[Tensor, " batch"],
    held_out: Int[Tensor, " fits"],
) -> Float[Tensor, " fits"]:
    """The core loss of every fit, without the label and the pairs of its held-out cell."""
    share = E.flatten(2) / E.sum(dim=(2, 3))[..., None]
    counted = (cell != held_out[:, None]).float()
    counted = counted / counted.sum(dim=1, keepdim=True)
    own = torch.arange(share.shape[-1]) == held_out[:, None, None]
    # -1e9 is finite: the label of held-out pairs then contributes 0 x 1e9, where 0 x infinity would be NaN.
    log_posterior = functional.log_softmax((10 * share).masked_fill(own, -1e9), dim=-1)
    likelihood = log_posterior.gather(-1, cell.expand(len(held_out), -1)[..., None])[..., 0]
    mean_usage = (counted[..., None] * usage).sum(dim=1)
    return (mean_usage * mean_usage.log()).sum(dim=-1) - (counted * likelihood).sum(dim=1)
