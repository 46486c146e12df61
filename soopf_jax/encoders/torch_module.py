"""Any torch model as a frozen encoder, in one call: `soopf_jax.encoder(model, preprocess)`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from soopf_jax import plugins
from soopf_jax.encoders.images import whole_image
from soopf_jax.errors import UserError
from soopf_jax.types import Encoder, Window

if TYPE_CHECKING:
    import torch

PROBE_SIDES = (64, 224, 256)
"""Sizes of the images on which a model and its preprocessing are tried out. The built-in data sets have two of them."""


def encoder(
    model: torch.nn.Module,
    preprocess: Callable[[Image.Image], Any],
    *,
    patch_tokens: slice | Callable[[Any], torch.Tensor] | None = None,
    name: str | None = None,
    window: Callable[[int, int], Window] | None = None,
    batch_size: int = 32,
) -> Encoder:
    """Wrap a torch model that gives patch tokens. It is used as it is, on its own device, in evaluation mode.

    Examples:
        >>> mine = soopf.encoder(model, transform, patch_tokens=slice(1, None))  # without the class token
        >>> soopf.benchmark(dataset="shapes3d-lite", encoder=mine)

    Args:
        model: A module whose output has the tokens [images, tokens, channels], or has them as `last_hidden_state`.
        preprocess: From one PIL image to the model's input [channels, rows, columns], such as a torchvision
            transform. The image processors of `transformers` work as they are.
        patch_tokens: Which tokens belong to patches: a slice, such as `slice(1, None)` to leave out a class token, or a
            function from the model's output to the patch tokens [images, patches, channels], row by row. By default
            all tokens.
        name: What results call it; by default the name of the model's class.
        window: From the (height, width) of an image to the part of it that the tokens cover. By default they cover the
            whole image in a square grid.
        batch_size: Images per forward pass.

    Raises:
        UserError: The model or its output cannot be used.
        MissingPackage: torch is not installed.
    """
    plugins.require("soopf.encoder", "torch")
    import torch

    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise UserError(f"soopf.encoder wraps a torch.nn.Module, not a {kind}; for anything else make a soopf.Encoder")
    wrapped = TorchModule(model.eval(), preprocess, patch_tokens, batch_size)
    identity = {
        "name": name or type(model).__name__,
        "weights": weights_sha256(model),
        "probes": {str(side): wrapped.probe(side) for side in PROBE_SIDES},
    }
    return Encoder(
        identity, wrapped.encode, window or wrapped.window, batch_size, stages=(wrapped.prepare, wrapped.forward)
    )


class TorchModule:
    """A model with its preprocessing, and which of its tokens count."""

    def __init__(
        self,
        model: torch.nn.Module,
        preprocess: Callable[[Image.Image], Any],
        patch_tokens: slice | Callable[[Any], torch.Tensor] | None,
        batch_size: int,
    ) -> None:
        self.model, self.preprocess, self.patch_tokens, self.batch_size = model, preprocess, patch_tokens, batch_size

    def prepare(self, images: UInt8[np.ndarray, "images height width 3"]) -> Any:
        """The model's input, a tensor [images, channels, rows, columns]."""
        import torch

        inputs = [_tensor(self.preprocess(Image.fromarray(image))) for image in images]
        shapes = sorted({tuple(each.shape) for each in inputs})
        if len(shapes) > 1:
            raise UserError(f"preprocess gives different shapes, {shapes[0]} and {shapes[1]}; resize all images alike")
        return torch.stack(inputs)

    def forward(self, inputs: Any) -> Float[np.ndarray, "images patches channels"]:
        """Patch tokens of prepared images."""
        import torch

        found = next(self.model.parameters(), None)
        with torch.inference_mode():
            output = self.model(inputs if found is None else inputs.to(found.device))
            tokens = self.tokens_of(output)
        if not isinstance(tokens, torch.Tensor) or tokens.ndim != 3 or len(tokens) != len(inputs):
            shape = f"shape {list(tokens.shape)}" if isinstance(tokens, torch.Tensor) else type(tokens).__name__
            raise UserError(
                f"the model gives {shape} for {len(inputs)} images; patch_tokens= must give [images, patches, channels]"
            )
        return tokens.to(torch.float32).cpu().numpy()

    def tokens_of(self, output: Any) -> Any:
        """The patch tokens in the model's output."""
        if callable(self.patch_tokens):
            return self.patch_tokens(output)
        tokens = getattr(output, "last_hidden_state", output)
        return tokens if self.patch_tokens is None else tokens[:, self.patch_tokens]

    def encode(
        self, images: UInt8[np.ndarray, "images height width 3"]
    ) -> Float[np.ndarray, "images patches channels"]:
        """Patch tokens, batch by batch."""
        starts = range(0, len(images), self.batch_size)
        return np.concatenate([self.forward(self.prepare(images[i : i + self.batch_size])) for i in starts])

    def window(self, height: int, width: int) -> Window:
        """The whole image, in as many patches as the model gives for an image of this size."""
        n_patches = self.encode(np.zeros((1, height, width, 3), np.uint8)).shape[1]
        side = math.isqrt(n_patches)
        if side**2 != n_patches:
            raise UserError(
                f"{n_patches} tokens form no square; select the patches with patch_tokens=, or give window="
            )
        return whole_image(height, width, side)

    def probe(self, side: int) -> str:
        """A digest of the tokens of one fixed image: other preprocessing or other tokens give another digest."""
        noise = np.random.default_rng(side).integers(0, 256, (1, side, side, 3), dtype=np.uint8)
        try:
            return hashlib.sha256(self.encode(noise).tobytes()).hexdigest()
        except UserError:
            raise
        except Exception as error:  # a model may refuse images of this size
            return type(error).__name__


def _tensor(prepared: Any) -> Any:
    """One image as a tensor. Image processors of transformers give a mapping with a batch of one."""
    import torch

    value = prepared["pixel_values"] if isinstance(prepared, Mapping) else prepared
    if isinstance(value, list):
        value = np.asarray(value)
    tensor = torch.as_tensor(value)
    return tensor[0] if tensor.ndim == 4 and len(tensor) == 1 else tensor


def weights_sha256(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters and buffers, with their names, kinds and shapes."""
    import torch

    content = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        content.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()
