"""`random-vit` and `random-vit-s`: frozen, randomly initialised ViT-L/16 and ViT-S/16 in Flax, as untrained controls.

The architecture is the usual pre-norm ViT with a CLS token and learned position embeddings; every weight is drawn from
a normal truncated at two standard deviations of 0.02, every bias is zero, LayerNorms are the identity at first.
"""

import hashlib
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
from soopf_jax.types import Encoder, EncoderRequest

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
    """Patch tokens after `layer` blocks: 0 are the embeddings; None: all blocks and the final norm."""

    shape: Shape
    layer: int | None = None

    @nn.compact
    def __call__(self, images: Float[Array, "images 224 224 3"]) -> Float[Array, "images 196 channels"]:
        """Row-major patch tokens, the CLS token dropped."""
        width, depth, heads = self.shape
        patches = nn.Conv(width, (PATCH, PATCH), (PATCH, PATCH), kernel_init=_weights, name="patches")(images)
        patches = patches.reshape(len(images), PATCHES**2, width)
        cls = self.param("cls", _weights, (1, 1, width))
        tokens = jnp.concatenate([jnp.tile(cls, (len(images), 1, 1)), patches], axis=1)
        tokens = tokens + self.param("positions", _weights, (1, PATCHES**2 + 1, width))
        for number in range(depth if self.layer is None else self.layer):
            tokens = Block(heads, name=f"block_{number}")(tokens)
        if self.layer is None:
            tokens = nn.LayerNorm(epsilon=1e-6, name="final_norm")(tokens)
        return tokens[:, 1:]


def open_encoder(request: EncoderRequest) -> Encoder:
    """The ViT of that name, with weights from a fixed seed."""
    shape = SHAPES[request.name]
    layer = request.layer
    if layer is not None:
        if not -shape.depth - 1 <= layer <= shape.depth:
            raise UserError(f"{request.name} has layers 0 to {shape.depth}, not {layer}; choose --layer among them")
        layer %= shape.depth + 1
    model = ViT(shape, layer)
    params = jax.jit(model.init)(jax.random.key(WEIGHT_SEED), jnp.zeros((1, SIDE, SIDE, 3)))
    forward = jax.jit(model.apply)

    def encode(images: UInt8[np.ndarray, "images height width 3"]) -> Float[np.ndarray, "images 196 channels"]:
        """Tokens in batches of one size, so that the forward pass is compiled once."""
        inputs = normalised(resized(images, SIDE))
        padded = np.pad(inputs, ((0, -len(inputs) % BATCH), (0, 0), (0, 0), (0, 0)))
        tokens = [np.asarray(forward(params, batch)) for batch in np.split(padded, len(padded) // BATCH)]
        return np.concatenate(tokens)[: len(images)]

    identity = {
        "name": request.name,
        "version": "1",
        "shape": list(shape),
        "layer": layer,
        "weights": _content_hash(params),
    }
    return Encoder(identity, encode, partial(whole_image, patches=PATCHES), batch_size=BATCH)


def _content_hash(params: PyTree) -> str:
    """SHA-256 of all weights, leaf by leaf in the tree's order."""
    content = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        content.update(np.ascontiguousarray(leaf).data)
    return content.hexdigest()
