"""`random-vit` and `random-vit-s`: frozen, randomly initialised ViT-L/16 and ViT-S/16 in Flax, as untrained controls.

The architecture is the usual pre-norm ViT with a CLS token and position embeddings. Every weight is drawn from a normal
distribution with standard deviation 0.02, truncated at two standard deviations. Every bias is zero, and every LayerNorm
has scale 1.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import truncated_normal
from jaxtyping import Array, Float, PyTree, UInt8

from soopf_jax.encoders.images import normalised, resized, whole_image
from soopf_jax.errors import UserError
from soopf_jax.types import Encoder, EncoderRequest, Json, Layers

SIDE, PATCH = 224, 16
PATCHES = SIDE // PATCH
WEIGHT_SEED = 0
BATCH = 16
_weights = truncated_normal(0.02)


class Shape(NamedTuple):
    """The size of a ViT."""

    width: int
    depth: int
    heads: int


SHAPES = {"random-vit": Shape(1024, 24, 16), "random-vit-s": Shape(384, 12, 6)}


class Block(nn.Module):
    """x + attention(LN x), then x + MLP(LN x)."""

    heads: int

    @nn.compact
    def __call__(self, tokens: Float[Array, "*images tokens width"]) -> Float[Array, "*images tokens width"]:
        """Tokens of the same shape."""
        width = tokens.shape[-1]
        normed = nn.LayerNorm(epsilon=1e-6)(tokens)
        tokens = tokens + nn.MultiHeadDotProductAttention(self.heads, kernel_init=_weights)(normed)
        hidden = nn.Dense(4 * width, kernel_init=_weights)(nn.LayerNorm(epsilon=1e-6)(tokens))
        return tokens + nn.Dense(width, kernel_init=_weights)(jax.nn.gelu(hidden, approximate=False))


class ViT(nn.Module):
    """Patch tokens after `layer` blocks. 0 means the embeddings, None means all blocks and the final norm."""

    shape: Shape
    layer: int | None = None

    def __call__(self, images: Float[Array, "images 224 224 3"]) -> Float[Array, "images 196 channels"]:
        """Patch tokens in row-major order, without the CLS token."""
        return self.states(images)[-1]

    @nn.compact
    def states(self, images: Float[Array, "images 224 224 3"]) -> list[Float[Array, "images 196 channels"]]:
        """The patch tokens of layers 0 to `layer`; with `layer` None, of all blocks and then after the final norm."""
        width, depth, heads = self.shape
        patches = nn.Conv(width, (PATCH, PATCH), (PATCH, PATCH), kernel_init=_weights, name="patches")(images)
        patches = patches.reshape(len(images), PATCHES**2, width)
        cls = self.param("cls", _weights, (1, 1, width))
        tokens = jnp.concatenate([jnp.tile(cls, (len(images), 1, 1)), patches], axis=1)
        tokens = tokens + self.param("positions", _weights, (1, PATCHES**2 + 1, width))
        states = [tokens]
        for number in range(depth if self.layer is None else self.layer):
            states.append(Block(heads, name=f"block_{number}")(states[-1]))
        if self.layer is None:
            states.append(nn.LayerNorm(epsilon=1e-6, name="final_norm")(states[-1]))
        return [state[:, 1:] for state in states]


def open_encoder(request: EncoderRequest) -> Encoder:
    """The ViT of that name, with weights from a fixed seed."""
    shape = SHAPES[request.name]
    layer = request.layer
    if layer is not None:
        if not -shape.depth - 1 <= layer <= shape.depth:
            raise UserError(f"{request.name} has layers 0 to {shape.depth}, not {layer}; choose --layer among them")
        layer %= shape.depth + 1
    whole = ViT(shape)
    params = jax.jit(whole.init)(jax.random.key(WEIGHT_SEED), jnp.zeros((1, SIDE, SIDE, 3)))
    own = _read_by(layer, params)
    one_layer = jax.jit(ViT(shape, layer).apply)
    every_layer = jax.jit(partial(whole.apply, method=whole.states))

    def encode(images: UInt8[np.ndarray, "images height width 3"]) -> Float[np.ndarray, "images 196 channels"]:
        return _in_batches(lambda batch: [one_layer(own, batch)], images)[0]

    def forward(
        images: UInt8[np.ndarray, "images height width 3"], layers: Sequence[int | None]
    ) -> list[Float[np.ndarray, "images 196 channels"]]:
        def wanted(batch: Float[np.ndarray, "images 224 224 3"]) -> list[Array]:
            states = every_layer(params, batch)
            return [states[-1 if layer is None else layer] for layer in layers]

        return _in_batches(wanted, images)

    def identity(layer: int | None) -> Json:
        weights = _content_hash(_read_by(layer, params))
        return {"name": request.name, "version": "1", "shape": list(shape), "layer": layer, "weights": weights}

    window = partial(whole_image, patches=PATCHES)
    layers = Layers(shape.depth, identity, forward)
    return Encoder(identity(layer), encode, window, batch_size=BATCH, layers=layers)


def _in_batches(
    forward: Callable[[np.ndarray], list[Array]], images: UInt8[np.ndarray, "images height width 3"]
) -> list[Float[np.ndarray, "images 196 channels"]]:
    """The outputs of `forward` in batches of one size, for which it is compiled only once."""
    inputs = normalised(resized(images, SIDE))
    padded = np.pad(inputs, ((0, -len(inputs) % BATCH), (0, 0), (0, 0), (0, 0)))
    batches = [[np.asarray(state) for state in forward(batch)] for batch in np.split(padded, len(padded) // BATCH)]
    return [np.concatenate(states)[: len(images)] for states in zip(*batches, strict=True)]


def _read_by(layer: int | None, params: PyTree) -> PyTree:
    """The weights that decide the tokens of a layer."""
    if layer is None:
        return params
    later = {name for name in params["params"] if name.startswith("block_") and int(name[6:]) >= layer}
    return {"params": {name: leaf for name, leaf in params["params"].items() if name not in {*later, "final_norm"}}}


def _content_hash(params: PyTree) -> str:
    """SHA-256 of all weights, leaf by leaf in the tree's order."""
    content = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        content.update(np.ascontiguousarray(leaf).data)
    return content.hexdigest()
