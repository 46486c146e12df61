"""timm models too small to mean anything, under names of their own, and weights of transformers under timm's names."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from timm.layers import LayerNorm
from timm.models import generate_default_cfgs, register_model
from timm.models.eva import Eva, _create_eva
from timm.models.vision_transformer import VisionTransformer, _create_vision_transformer
from torch import Tensor

_SIZES = {"patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 2, "mlp_ratio": 2}
_CFG = {"num_classes": 0, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "interpolation": "bicubic"}
default_cfgs = generate_default_cfgs(
    {
        "tiny_dinov3.test": {**_CFG, "input_size": (3, 32, 32), "crop_pct": 1.0, "license": "dinov3-license"},
        "tiny_dinov2.test": {**_CFG, "input_size": (3, 32, 32), "crop_pct": 1.0},
        "tiny_siglip.test": {**_CFG, "input_size": (3, 32, 32), "crop_pct": 1.0},
    }
)


@register_model
def tiny_dinov3(pretrained: bool = False, **options: Any) -> Eva:
    """As vit_large_patch16_dinov3_qkvb."""
    fixed = {
        "img_size": 32,
        "dynamic_img_size": True,
        "qkv_bias": True,
        "init_values": 1e-5,
        "rope_type": "dinov3",
        "rope_temperature": 100,
        "use_rot_pos_emb": True,
        "use_abs_pos_emb": False,
        "rope_rotate_half": True,
        "num_reg_tokens": 4,
        "use_fc_norm": False,
        "norm_layer": partial(LayerNorm, eps=1e-5),
    }
    return _create_eva("tiny_dinov3", pretrained=pretrained, **{**_SIZES, **fixed, **options})


@register_model
def tiny_dinov2(pretrained: bool = False, **options: Any) -> VisionTransformer:
    """As vit_large_patch14_dinov2."""
    fixed = {**_SIZES, "img_size": 32, "init_values": 1e-5, "mlp_ratio": 4}
    return _create_vision_transformer("tiny_dinov2", pretrained=pretrained, **{**fixed, **options})


@register_model
def tiny_siglip(pretrained: bool = False, **options: Any) -> VisionTransformer:
    """As vit_large_patch16_siglip_gap_256: no class token, no pooling head."""
    fixed = {**_SIZES, "img_size": 32, "class_token": False, "global_pool": "avg", "fc_norm": False}
    fixed |= {"act_layer": "gelu_tanh"}
    return _create_vision_transformer("tiny_siglip", pretrained=pretrained, **{**fixed, **options})


_BLOCK = {
    r"layer_scale1\.lambda1": "ls1.gamma",
    r"layer_scale2\.lambda1": "ls2.gamma",
    r"attention\.o_proj|attention\.output\.dense|self_attn\.out_proj": "attn.proj",
    r"mlp\.up_proj": "mlp.fc1",
    r"mlp\.down_proj": "mlp.fc2",
    r"layer_norm": "norm",
}


def _block_name(name: str) -> str:
    for pattern, replacement in _BLOCK.items():
        name = re.sub(pattern, replacement, name)
    return name


def to_timm(state: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of DINOv3ViTModel, Dinov2Model or SiglipVisionModel under the names that `target` has in timm."""
    named: dict[str, Tensor] = {}
    projections: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        if found := re.match(r"(?:.*\.)?layers?\.(\d+)\.(.*)", name):
            number, rest = found.groups()
            if part := re.search(r"\b(q|k|v|query|key|value)(?:_proj)?\.(weight|bias)$", rest):
                projections.setdefault(f"blocks.{number}.attn", {})[part[1][0] + part[2]] = value
            else:
                named[f"blocks.{number}.{_block_name(rest)}"] = value
    for prefix, parts in projections.items():
        named[f"{prefix}.qkv.weight"] = torch.cat([parts["qweight"], parts["kweight"], parts["vweight"]])
        if f"{prefix}.q_bias" in target:
            named |= {f"{prefix}.q_bias": parts["qbias"], f"{prefix}.v_bias": parts["vbias"]}
        elif f"{prefix}.qkv.bias" in target:
            named[f"{prefix}.qkv.bias"] = torch.cat([parts["qbias"], parts["kbias"], parts["vbias"]])
    ends: dict[str, Callable[[str], bool]] = {
        "cls_token": lambda name: name.endswith("cls_token"),
        "reg_token": lambda name: name.endswith("register_tokens"),
        "pos_embed": lambda name: "position_embedding" in name,
        "patch_embed.proj.weight": lambda name: "patch_embedding" in name and name.endswith("weight"),
        "patch_embed.proj.bias": lambda name: "patch_embedding" in name and name.endswith("bias"),
        "norm.weight": lambda name: name in ("norm.weight", "layernorm.weight") or "post_layernorm.weight" in name,
        "norm.bias": lambda name: name in ("norm.bias", "layernorm.bias") or "post_layernorm.bias" in name,
    }
    for wanted, matches in ends.items():
        for name, value in state.items():
            if wanted in target and matches(name):
                named[wanted] = value.reshape(target[wanted].shape)
    if "blocks.0.gamma_1" in target:  # Eva names its layer scales in another way than VisionTransformer
        named = {re.sub(r"ls([12])\.gamma", r"gamma_\1", name): value for name, value in named.items()}
    return named


def save(weights: Mapping[str, Tensor], path: Path) -> Path:
    safetensors.torch.save_file({name: value.detach().clone().contiguous() for name, value in weights.items()}, path)
    return path
