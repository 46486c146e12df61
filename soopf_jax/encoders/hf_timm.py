"""Models of timm as frozen encoders.

In: `timm:NAME` for weights from the hub, `timm:NAME@PATH.safetensors` for a file, or a name in PUBLISHED, which
`hf_timm_checkpoint.py` finds and loads. Out: an Encoder that gives the patch tokens. For transformers with blocks,
layers are counted as in `hf.py`: 0 is what the first block receives, l what block l returns. For other models, whose
features are grids of different sizes, layer l is timm's feature number l. No layer at all: the last one, after the
final norm where the model has one for its patches.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
from jaxtyping import Float
from torch import Tensor

from soopf_jax.encoders.hf_preprocess import Preprocessing
from soopf_jax.encoders.hf_timm_checkpoint import (
    PUBLISHED,
    VERSION,
    from_hub,
    load_model,
    local_file,
    settings_of,
    summary,
    timm_preprocessing,
)
from soopf_jax.encoders.hf_torch import DTYPE, choose_device, count_from_front, images_per_batch, torch_encoder
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime.hashing import file_sha256
from soopf_jax.types import Encoder, EncoderRequest


class Grid(NamedTuple):
    """What one forward pass shows about a model."""

    patch: tuple[int, int]
    """(height, width) of a patch in pixels of the model's input."""
    tokens: int
    channels: int
    final_norm: str
    """`norm` where the model normalises its patch tokens at the end, else `none`."""


def open_encoder(request: EncoderRequest) -> Encoder:
    """The encoder called `timm:NAME`, `timm:NAME@PATH.safetensors`, `dinov3-timm`, ...

    Raises:
        UserError: timm has no such model, its weights cannot be had, or it gives no grid of patch tokens.
    """
    name = request.name.removeprefix("timm:")
    if name == request.name and name not in PUBLISHED:
        raise unknown_name("encoder", request.name, PUBLISHED, also=", timm:NAME or timm:NAME@PATH.safetensors")
    name, _, path = name.partition("@")
    published = PUBLISHED.get(name)
    model_name = published.model if published else name
    settings = settings_of(model_name)
    source = local_file(path) if path else from_hub(model_name, settings)
    model = load_model(model_name, source)
    if published and published.bfloat16_rope:
        model.rope.periods = model.rope.periods.to(torch.bfloat16).to(torch.float32)
    preprocessing = published.preprocessing if published else timm_preprocessing(model)
    device = choose_device()
    model = model.to(device)
    blocks = _blocks(model)
    layer = count_from_front(request.layer, blocks) if blocks else _feature_number(model, request.layer)
    grid = _look(model_name, model, layer, preprocessing, device)

    def forward(
        pixels: Float[Tensor, "images 3 rows columns"], layers: Sequence[int | None]
    ) -> list[Float[np.ndarray, "images patches channels"]]:
        return [tokens.cpu().numpy() for tokens in _tokens(model, layers, pixels)]

    identity = {
        "name": "timm",
        "hub_id": source.hub_id,
        "revision": source.revision,
        "model": model_name,
        "class": type(model).__name__,
        "licence": settings.get("license"),
        "weights": {source.file.name if source.hub_id else "file": file_sha256(source.file)},
        "preprocessing": preprocessing._asdict(),
        "layer": layer,
        "final_norm": grid.final_norm,
        "rope_periods": "bfloat16" if published and published.bfloat16_rope else "as timm computes them",
        "dtype": DTYPE,
        "versions": {"torch": torch.__version__, "timm": VERSION, "pillow": PIL.__version__},
    }
    # As in hf.py: what a block holds at once, every layer's output, and the attention.
    batch_size = images_per_batch(device, grid.tokens * grid.channels * (16 + blocks) + grid.tokens**2 * 16)
    return torch_encoder(identity, forward, blocks or None, preprocessing, grid.patch, device, batch_size)


# --------------------------------------------------------------------------------------------------- the tokens


def _blocks(model: Any) -> int:
    """The number of blocks of a vision transformer; 0 for any other model."""
    return len(model.blocks) if hasattr(model, "num_prefix_tokens") and hasattr(model, "blocks") else 0


def _feature_number(model: Any, layer: int | None) -> int | None:
    """The number of a feature of a model without blocks, counted from the front."""
    features = len(model.feature_info)
    if layer is not None and not -features <= layer < features:
        raise UserError(f"there is no layer {layer}; choose 0 to {features - 1}, or -1 for the last")
    return None if layer is None else layer % features


@torch.inference_mode()
def _tokens(
    model: Any, layers: Sequence[int | None], pixels: Float[Tensor, "images 3 rows columns"]
) -> list[Float[Tensor, "images patches channels"]]:
    """Row-major patch tokens of one batch at each of the layers, prefix tokens dropped."""
    if not _blocks(model):
        return [_grid(model, layer, layer is None, pixels).flatten(2).transpose(1, 2) for layer in layers]
    embeddings: list[Tensor] = []
    # The input of the first block, layer 0, is not among timm's intermediates.
    hook = model.blocks[0].register_forward_pre_hook(lambda _, given: embeddings.append(given[0]))
    numbers = sorted({_blocks(model) if layer is None else max(layer, 1) for layer in layers})
    try:
        output, grids = model.forward_intermediates(
            pixels, indices=[number - 1 for number in numbers], stop_early=None not in layers, output_fmt="NCHW"
        )
    finally:
        hook.remove()
    found: dict[int | None, Tensor] = dict(zip(numbers, grids, strict=True))
    found = {number: grid.flatten(2).transpose(1, 2) for number, grid in found.items()}
    found |= {number: tokens[:, model.num_prefix_tokens :] for number, tokens in ((0, embeddings[0]), (None, output))}
    return [found[layer] for layer in layers]


@torch.inference_mode()
def _grid(
    model: Any, layer: int | None, norm: bool, pixels: Float[Tensor, "images 3 height width"]
) -> Float[Tensor, "images channels rows columns"]:
    """The output of a block, or a feature of a model without blocks, by timm's own function."""
    last = (_blocks(model) or len(model.feature_info)) - 1
    number = last if layer is None else layer - bool(_blocks(model))
    options = {"indices": [number], "norm": norm, "stop_early": True, "intermediates_only": True}
    return model.forward_intermediates(pixels, output_fmt="NCHW", **options)[0]


@torch.inference_mode()
def _look(name: str, model: Any, layer: int | None, preprocessing: Preprocessing, device: torch.device) -> Grid:
    """Run one grey image through the whole model and see what comes out."""
    height, width = preprocessing.crop or preprocessing.resize  # type: ignore[misc]
    shown = layer if layer or not _blocks(model) else None
    try:
        pixels = torch.zeros(1, 3, height, width, device=device)
        grid = _grid(model, shown, shown is None, pixels)
        last, plain = (_grid(model, None, norm, pixels) for norm in (True, False))
        _, channels, rows, columns = grid.shape
        agree = True
        if _blocks(model):
            output = model.forward_features(pixels)[:, model.num_prefix_tokens :]
            agree = torch.allclose(output, _tokens(model, [None], pixels)[0], rtol=1e-4, atol=1e-4)
    except Exception as error:  # the model's own code, of any architecture
        raise UserError(f"'{name}' of timm gives no grid of patch tokens ({summary(error)}); choose another") from error
    if not agree or height % rows or width % columns:
        raise UserError(f"'{name}' of timm gives {rows} x {columns} tokens that are not its patches; choose another")
    norm = "none" if torch.equal(last, plain) else "norm"
    return Grid((height // rows, width // columns), rows * columns, channels, norm)
