"""Checkpoints of the real transformers classes, too small to mean anything, saved as a hub folder is."""

import json
from pathlib import Path
from typing import Any

import torch

from soopf_jax.encoders.hf_torch import import_torchvision

import_torchvision()  # or transformers could not, beside a CPU build of torch
import transformers  # noqa: E402

# Models this small spend their time waiting for a second thread.
torch.set_num_threads(1)

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 64}
DECODER = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 16,
}
DINOV2 = {key: value for key, value in SIZES.items() if key != "intermediate_size"}


def with_text(kind: str) -> Any:
    """CLIP or SigLIP with both towers."""
    config = getattr(transformers, f"{kind}Config")(text_config=TEXT, vision_config=SIZES)
    return getattr(transformers, f"{kind}Model")(config)


MODELS = {
    "dinov3": lambda: transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**SIZES, num_register_tokens=4)),
    "siglip": lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**SIZES)),
    "siglip-with-text": lambda: with_text("Siglip"),
    "clip": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SIZES)),
    "clip-with-text": lambda: with_text("CLIP"),
    "mae-with-decoder": lambda: transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**SIZES, **DECODER)),
    "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(**DINOV2)),
    "dinov2-registers": lambda: transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**DINOV2, num_register_tokens=4)
    ),
    "vit-with-head": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**SIZES)),
    "deit": lambda: transformers.DeiTModel(transformers.DeiTConfig(**SIZES)),
    "ijepa": lambda: transformers.IJepaModel(transformers.IJepaConfig(**SIZES)),
    "beit": lambda: transformers.BeitModel(transformers.BeitConfig(**SIZES)),
}
"""Name -> model; `beit` is in no table of ours and goes the way of any other AutoModel."""

PREPROCESSOR = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "resample": 3}


def save(model: Any, folder: Path, preprocessor: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write a model as the hub stores it; every weight is drawn anew so that none is zero, one or shared."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2, generator=generator)
    model.save_pretrained(folder, **options)
    settings = PREPROCESSOR if preprocessor is None else preprocessor
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder
