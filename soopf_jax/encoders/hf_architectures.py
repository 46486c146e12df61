"""Tables of the named encoders and of the known architectures.

An entry of ARCHITECTURES holds what a checkpoint does not say: the class that returns patch tokens, the number of
tokens before them, and the norm after the last block. The image processor determines the order of the preprocessing
steps (see hf_preprocess.PROCESSORS).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from soopf_jax.types import Json


class Architecture(NamedTuple):
    """How to get patch tokens from one kind of model."""

    model: str
    """Its class in transformers."""
    class_tokens: int | None
    """The number of tokens before the registers and the patches; None: found from the output."""
    final_norm: str
    """The module between the last block and `last_hidden_state`; `none`: no norm; `unknown`: not checked."""
    processor: str | None
    """The image processor class to use if the checkpoint names none."""
    other_parts: tuple[str, ...] = ()
    """Prefixes of the weights that a checkpoint may hold and this class does not use: heads, decoders, text towers."""
    options: Json = MappingProxyType({})
    """Keyword arguments for the class."""
    overrides: Json = MappingProxyType({})
    """Values that replace those of the config."""
    any_size: bool = False
    """Whether it accepts images of other sizes than the config names."""
    noise: bool = False
    """Whether it shuffles patches by a noise input. Ascending noise then keeps their order."""


HUB_IDS: Mapping[str, str] = {
    "dinov3": "facebook/dinov3-vitl16-pretrain-lvd1689m",
    "dinov3-b": "facebook/dinov3-vitb16-pretrain-lvd1689m",
    "dinov3-s": "facebook/dinov3-vits16-pretrain-lvd1689m",
    "siglip2": "google/siglip2-large-patch16-256",
    "dinov2-l": "facebook/dinov2-large",
    "dinov2-b": "facebook/dinov2-base",
    "dinov2-s": "facebook/dinov2-small",
    "clip-l": "openai/clip-vit-large-patch14",
    "mae-b": "facebook/vit-mae-base",
}
UNGATED: Mapping[str, str] = {
    "facebook/dinov3-vitl16-pretrain-lvd1689m": "dinov3-timm",
    "facebook/dinov3-vitb16-pretrain-lvd1689m": "dinov3-timm-b",
    "facebook/dinov3-vits16-pretrain-lvd1689m": "dinov3-timm-s",
}
"""Gated repositories and the encoders that read copies of the same weights without a request for access."""


def _dinov3(width: int, depth: int, heads: int) -> Json:
    """The config of a DINOv3 ViT/16 as its conversion script in transformers has it."""
    return {
        "model_type": "dinov3_vit",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_register_tokens": 4,
        "image_size": 224,
        "patch_size": 16,
    }


UNTRAINED: Mapping[str, Json] = {"random-dinov3-l": _dinov3(1024, 24, 16), "random-dinov3-s": _dinov3(384, 12, 6)}
"""Architectures that are opened with untrained weights, without any file, by their configs."""

_DINOV2 = Architecture("Dinov2Model", 1, "layernorm", "BitImageProcessor", ("classifier.",), any_size=True)
_SIGLIP = Architecture(
    "SiglipVisionModel",
    0,
    "post_layernorm",
    "SiglipImageProcessor",
    ("text_model.", "logit_scale", "logit_bias"),
)
# CLIP applies post_layernorm only to the pooled class token. Its patch tokens have no final norm.
_CLIP = Architecture(
    "CLIPVisionModel",
    1,
    "none",
    "CLIPImageProcessor",
    ("text_model.", "text_projection.", "visual_projection.", "logit_scale"),
)
_VIT = Architecture(
    "ViTModel",
    1,
    "layernorm",
    "ViTImageProcessor",
    ("classifier.", "pooler.", "decoder."),
    options={"add_pooling_layer": False},
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "dinov3_vit": Architecture("DINOv3ViTModel", 1, "norm", "DINOv3ViTImageProcessor", any_size=True),
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2._replace(model="Dinov2WithRegistersModel"),
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "vit": _VIT,
    "deit": _VIT._replace(
        model="DeiTModel",
        class_tokens=2,
        processor="DeiTImageProcessor",
        other_parts=("classifier.", "cls_classifier.", "distillation_classifier.", "pooler.", "decoder."),
    ),
    "ijepa": _VIT._replace(model="IJepaModel", class_tokens=0),
    "vit_mae": Architecture(
        "ViTMAEModel",
        1,
        "layernorm",
        "ViTImageProcessor",
        ("decoder.",),
        overrides={"mask_ratio": 0.0},
        noise=True,
    ),
}
"""The known architectures by the `model_type` of the config."""

ANY = Architecture("AutoModel", None, "unknown", None, ("classifier.",))
"""Any other model type. Its properties are found from its output where possible."""
