"""One plug-in of every kind, in a module of your own. docs/extending.md has the command that runs it."""

import jax
import jax.numpy as jnp
import numpy as np

from soopf_jax import Assignment, Encoder, Grid, ImagePairs, Readout, ReadoutOutput, Substrate, Term, Weighted, Window


def open_substrate(request):
    """A data set: random colours in 8 x 8 pixels. An edit makes the left or the right half brighter or darker."""
    grid = Grid(("left", "right"), ("brighter", "darker"))
    cell = np.arange(4 * (request.pairs_per_cell or 20)) % 4

    def render(pairs):
        source = np.stack([np.random.default_rng([request.data_seed, p]).integers(80, 170, (8, 8, 3)) for p in pairs])
        region = np.broadcast_to(np.repeat([0, 1], 4), source.shape[:3])  # the support of every pixel
        support, operation = grid.axes(cell[list(pairs)])
        change = np.where(operation == 0, 60, -60)[:, None, None, None]
        edited = source + change * (region == support[:, None, None])[..., None]
        return ImagePairs(source.astype(np.uint8), edited.astype(np.uint8), region.astype(np.int8))

    identity = {"name": "squares", "pairs_per_cell": request.pairs_per_cell, "data_seed": request.data_seed}
    return Substrate(grid, cell, (8, 8), identity, render)


def open_encoder(request):
    """An encoder: 2 x 4 patches of 4 x 2 pixels, whose tokens are the pixels themselves."""

    def encode(images):
        patches = images.reshape(-1, 2, 4, 4, 2, 3).swapaxes(2, 3).reshape(len(images), 8, 24)
        return patches.astype(np.float32) / 255

    return Encoder({"name": "raw-patches"}, encode, lambda height, width: Window(0.0, 0.0, height, width, 2, 4))


def init(key, dims):
    """The readout's parameters: a weight for each patch and support, and one for each channel and operation."""
    where, what = jax.random.split(key)
    return {
        "where": 0.1 * jax.random.normal(where, (dims.patches, dims.supports)),
        "what": 0.1 * jax.random.normal(what, (dims.channels, dims.operations)),
    }


def apply(params, delta, tau):
    """The energy of one pair: where the change is, times what it looks like."""
    support = jax.nn.softmax(jnp.sum(delta**2, axis=1) @ params["where"])
    operation = jax.nn.softmax(jnp.sum(delta, axis=0) @ params["what"] / tau)
    return ReadoutOutput(jnp.outer(support, operation))


READOUT = Readout(lambda pair: pair.delta / (jnp.linalg.norm(pair.delta) + 1e-6), init, apply)

SHARP = Assignment(
    lambda key, grid: {"logits": 0.1 * jax.random.normal(key, (grid.n_cells, grid.n_cells))},
    lambda params, held_out, grid: jax.nn.softmax(2 * params["logits"]),
)
"""A learned assignment: the softmax of twice the logits. It declares no `sees`, so it gets shuffled labels."""

OBJECTIVE = {"cell": 1.0, "largest": Weighted(0.01, Term(lambda batch: jnp.mean(jnp.max(batch.share, axis=1))))}
"""The first term of the core objective, and a term of our own: no cell should take all the energy."""
