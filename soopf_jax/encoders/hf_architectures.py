"""The encoders by name and the architectures by model type: data only.

A row of ARCHITECTURES names what no checkpoint tells: the class that gives its patch tokens, the tokens
before them, the norm after the last block. The image processor fixes the order of the transform (see
hf_preprocess.PROCESSORS).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from soopf_jax.types import Json


class Architecture(NamedTuple):
    """How to read patch tokens off one kind of model."""

    model: str
    """Its class in transformers."""
    class_tokens: int | None
    """Tokens before the registers and the patches; None: to be seen from the output."""
    final_norm: str
    """The module between the last block and `last_hidden_state`; `none`: no norm; `unknown`: not checked."""
    processor: str | None
    """Its usual image processor class, for where the checkpoint names none."""
    other_parts: tuple[str, ...] = ()
    """How weights start that a checkpoint may hold beyond this class: heads, decoders, text towers."""
    options: Json = MappingProxyType({})
    """Keywords of the class."""
    overrides: Json = MappingProxyType({})
    """Values that replace the config's."""
    any_size: bool = False
    """Whether it takes images of other sizes than its config's."""
    noise: bool = False
    """Whether it shuffles patches by a noise input, which must then be in ascending order."""


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

_DINOV2 = Architecture("Dinov2Model", 1, "layernorm", "BitImageProcessor", ("classifier.",), any_size=True)
_SIGLIP = Architecture(
    "SiglipVisionModel",
    0,
    "post_layernorm",
    "SiglipImageProcessor",
    ("text_model.", "logit_scale", "logit_bias"),
)
# CLIP's post_layernorm is for the pooled class token alone: patch tokens leave the model without a norm.
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
"""By the `model_type` of the config."""

ANY = Architecture("AutoModel", None, "unknown", None, ("classifier.",))
"""Any other model type: what can be learnt from its output is."""
