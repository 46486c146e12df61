"""The built-in encoders, against hand computation and a plain PyTorch transformer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from soopf_jax import plugins
from soopf_jax.encoders import pixels, random_vit
from soopf_jax.encoders.images import resized
from soopf_jax.errors import UserError
from soopf_jax.features.encode import region_fractions
from soopf_jax.types import EncoderRequest


def open_encoder(name, layer=None):
    return plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name, layer))


def test_pixels_of_a_64_pixel_image_by_hand():
    """Patch 9 is row 1, column 1; its token's place (0, 1) is the mean of pixels (8..9, 10..11)."""
    image = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8)
    tokens = pixels.encode(image)
    assert tokens.shape == (1, 64, 48)
    place = image[0, 8:10, 10:12].astype(float).mean(axis=(0, 1)) / 127.5 - 1
    np.testing.assert_allclose(tokens[0, 9].reshape(4, 4, 3)[0, 1], place, atol=1e-6)


def test_pixels_of_larger_images_are_resized_to_14_by_14_patches():
    image = np.full((2, 256, 256, 3), 255, np.uint8)
    image[1] = 0
    tokens = pixels.encode(image)
    assert tokens.shape == (2, 196, 48)
    assert np.all(tokens[0] == 1)
    assert np.all(tokens[1] == -1)


@pytest.mark.parametrize("side", [64, 256])
def test_regions_lie_where_the_tokens_change(side):
    """An edit of the upper left corner changes just the tokens whose patches have a share of it.

    Its edge lies inside a patch, two pixels or more from the next, so that the resize filter does not reach over.
    """
    corner = side * 7 // 16
    source = np.zeros((1, side, side, 3), np.uint8)
    edited = source.copy()
    edited[:, :corner, :corner] = 200
    region = np.zeros((1, side, side), np.int8)
    region[:, :corner, :corner] = 1
    changed = np.any(pixels.encode(edited) != pixels.encode(source), axis=2)
    share = region_fractions(region, pixels.window(side, side), 2)[..., 1]
    assert np.array_equal(changed, share > 0)


def test_a_resize_keeps_the_mean_and_leaves_the_right_size_alone():
    image = np.random.default_rng(0).integers(0, 256, (1, 256, 256, 3)).astype(np.uint8)
    assert resized(image, 256) is image
    assert abs(resized(image, 224).mean() - image.mean()) < 0.5


def torch_vit(params, images, shape):
    """The same transformer from torch's own functions, in float64."""
    p = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf, np.float64)), params)

    def norm(x, w):
        return F.layer_norm(x, (shape.width,), w["scale"], w["bias"], eps=1e-6)

    def dense(x, w):
        return x @ w["kernel"] + w["bias"]

    patches = F.conv2d(images.permute(0, 3, 1, 2), p["patches"]["kernel"].permute(3, 2, 0, 1), p["patches"]["bias"], 16)
    tokens = patches.flatten(2).transpose(1, 2)
    tokens = torch.cat([p["cls"].expand(len(images), -1, -1), tokens], 1) + p["positions"]
    for number in range(shape.depth):
        block = p[f"block_{number}"]
        a = block["MultiHeadDotProductAttention_0"]
        x = norm(tokens, block["LayerNorm_0"])
        q, k, v = (
            torch.einsum("btc,chd->bhtd", x, a[name]["kernel"]) + a[name]["bias"][:, None]
            for name in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        tokens = tokens + torch.einsum("bhtd,hdc->btc", mixed, a["out"]["kernel"]) + a["out"]["bias"]
        hidden = F.gelu(dense(norm(tokens, block["LayerNorm_1"]), block["Dense_0"]))
        tokens = tokens + dense(hidden, block["Dense_1"])
    return norm(tokens, p["final_norm"])[:, 1:]


def test_the_vit_equals_a_plain_pytorch_transformer():
    shape = random_vit.Shape(width=24, depth=2, heads=3)
    model = random_vit.ViT(shape)
    images = np.random.default_rng(0).normal(size=(2, 224, 224, 3))
    params = jax.jit(model.init)(jax.random.key(1), jnp.zeros((1, 224, 224, 3)))["params"]
    # Larger weights than the initial ones, so that attention and MLP weigh against the residual.
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.2 * np.random.default_rng(2).normal(size=leaf.shape), params
    )
    ours = jax.jit(model.apply)({"params": params}, jnp.asarray(images, jnp.float32))
    theirs = torch_vit(params, torch.tensor(images), shape)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-4)


def test_random_vits_have_the_sizes_of_their_names():
    assert random_vit.SHAPES["random-vit"] == (1024, 24, 16)
    assert random_vit.SHAPES["random-vit-s"] == (384, 12, 6)


def test_random_vit_s_is_frozen_and_the_same_for_any_batching(monkeypatch):
    """Three of its twelve blocks, which are all alike."""
    monkeypatch.setitem(random_vit.SHAPES, "random-vit-s", random_vit.Shape(width=384, depth=3, heads=6))
    encoder = open_encoder("random-vit-s", layer=2)
    images = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    tokens = encoder.encode(images)
    assert tokens.shape == (3, 196, 384)
    np.testing.assert_allclose(encoder.encode(images[1:2]), tokens[1:2], atol=1e-5)
    again = open_encoder("random-vit-s", layer=2)
    assert again.identity == encoder.identity
    assert again.identity["weights"] != open_encoder("random-vit-s", layer=0).identity["weights"]
    np.testing.assert_array_equal(again.encode(images), tokens)


def test_layers_that_do_not_exist_are_refused():
    with pytest.raises(UserError, match="layers 0 to 12"):
        open_encoder("random-vit-s", layer=13)
    with pytest.raises(UserError, match="no layers"):
        open_encoder("pixels", layer=1)
