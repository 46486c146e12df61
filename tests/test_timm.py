"""timm's models against transformers' on the same weights, and timm's own transform, without a network."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file

pytest.importorskip("timm", reason="timm comes with the extra [timm]")
import timm

from soopf_jax.encoders import hf
from soopf_jax.encoders.hf_preprocess import pixel_values
from soopf_jax.encoders.hf_timm import PUBLISHED, open_encoder, timm_preprocessing
from soopf_jax.errors import UserError
from soopf_jax.experiments.options import Bench
from soopf_jax.plugins import ENCODERS, resolve
from soopf_jax.report.run_folder import carry_out
from soopf_jax.studies import opening
from soopf_jax.types import EncoderRequest, Window
from tests import tiny_checkpoints, tiny_timm

KINDS = ["dinov3", "dinov2", "siglip"]
SETTINGS = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 32, "width": 32},
    "resample": 3,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
CLASSES = {"dinov3": "DINOv3ViTModel", "dinov2": "Dinov2Model", "siglip": "SiglipVisionModel"}


def noise(count: int = 2, height: int = 64, width: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def open_timm(name: str, layer: int | None = None):
    return open_encoder(EncoderRequest(f"timm:{name}", layer))


def error_of(name: str) -> str:
    with pytest.raises(UserError) as caught:
        open_encoder(EncoderRequest(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """For each kind, a folder for `hf:` and a file for `timm:` with the same weights."""
    root = tmp_path_factory.mktemp("timm")
    pairs = {}
    for kind in KINDS:
        folder = tiny_checkpoints.save(tiny_checkpoints.MODELS[kind](), root / kind, SETTINGS)
        state = getattr(transformers, CLASSES[kind]).from_pretrained(folder).state_dict()
        target = timm.create_model(f"tiny_{kind}").state_dict()
        weights = tiny_timm.to_timm(state, target)
        assert weights.keys() == target.keys()
        pairs[kind] = folder, tiny_timm.save(weights, root / f"{kind}.safetensors")
    return pairs


# ---------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("layer", [None, 0, 1, 2, 3, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_timm_gives_the_tokens_of_transformers_at_every_layer(both, kind, layer):
    folder, file = both[kind]
    ours = open_timm(f"tiny_{kind}@{file}", layer)
    theirs = hf.open_encoder(EncoderRequest(f"hf:{folder}", layer))
    expected = theirs.encode(noise())
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(ours.encode(noise()), expected, atol=1e-5, rtol=1e-5)
    assert ours.window(64, 64) == theirs.window(64, 64) == Window(0.0, 0.0, 64.0, 64.0, 4, 4)
    assert ours.identity["layer"] == theirs.identity["layer"]


def test_rounded_rope_periods_are_those_of_metas_checkpoint(both, monkeypatch, tmp_path):
    """The output equals a forward pass whose periods are rounded by hand, and differs from one with float32 periods."""
    weights = load_file(both["dinov3"][1])
    # Attention must be sharp, or the positions would hardly matter.
    sharp = {name: 6 * value if name.endswith("qkv.weight") else value for name, value in weights.items()}
    file = tiny_timm.save(sharp, tmp_path / "sharp.safetensors")
    recipe = PUBLISHED["dinov3-timm"]._replace(model="tiny_dinov3")
    monkeypatch.setattr("soopf_jax.encoders.hf_timm.PUBLISHED", {"dinov3-timm": recipe})
    encoder = open_timm(f"dinov3-timm@{file}")
    floats = torch.tensor(noise()).permute(0, 3, 1, 2) / 255
    resized = torch.nn.functional.interpolate(floats, (224, 224), mode="bilinear", antialias=True)
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    outputs = []
    for rounded in (True, False):
        model = timm.create_model("tiny_dinov3", checkpoint_path=str(file)).eval()
        if rounded:  # bfloat16 keeps the upper 16 bits of a float32, rounded to even
            bits = model.rope.periods.numpy().view(np.uint32).astype(np.uint64)
            kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
            model.rope.periods = torch.tensor(kept.astype(np.uint32).view(np.float32))
        with torch.inference_mode():
            outputs.append(model.forward_features((resized - mean) / std)[:, 5:].numpy())
    assert outputs[0].shape == (2, 28 * 28, 32)
    np.testing.assert_allclose(encoder.encode(noise()), outputs[0], atol=2e-5)
    assert np.abs(outputs[0] - outputs[1]).max() > 10 * 2e-5
    assert encoder.identity["rope_periods"] == "bfloat16"
    assert encoder.identity["licence"] == "dinov3-license"


def test_the_ungated_copies_are_read_as_the_papers_checkpoint():
    for published in PUBLISHED.values():
        assert timm.get_pretrained_cfg(published.model).hf_hub_id == f"timm/{published.model}"
        steps = published.preprocessing
        assert (steps.order, steps.resize, steps.resample, steps.crop) == (
            "rescale-first",
            (224, 224),
            "bilinear",
            None,
        )


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext"])
def test_a_convolutional_model_gives_a_row_major_grid(tmp_path, name):
    model = timm.create_model(name).eval()
    file = tiny_timm.save(model.state_dict(), tmp_path / "weights.safetensors")
    encoder = open_timm(f"{name}@{file}")
    steps = timm_preprocessing(model)
    images = noise()
    with torch.inference_mode():
        expected = model.forward_features(pixel_values(steps, images, torch.device("cpu"))).numpy()
    window = encoder.window(64, 64)
    assert (window.rows, window.columns) == expected.shape[2:]
    tokens = encoder.encode(images).reshape(2, window.rows, window.columns, -1)
    np.testing.assert_allclose(tokens, expected.transpose(0, 2, 3, 1), atol=1e-5)


@pytest.mark.slow
def test_vit_large_gives_the_tokens_of_transformers(tmp_path):
    torch.manual_seed(0)
    config = transformers.DINOv3ViTConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_register_tokens=4,
        patch_size=16,
        image_size=224,
        layerscale_value=0.1,
    )
    theirs = transformers.DINOv3ViTModel(config).eval()
    ours = timm.create_model("vit_large_patch16_dinov3_qkvb").eval()
    ours.load_state_dict(tiny_timm.to_timm(theirs.state_dict(), ours.state_dict()))
    pixels = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        hidden = theirs(pixels, output_hidden_states=True).hidden_states
        _, blocks = ours.forward_intermediates(pixels, output_fmt="NLC")
        last = theirs(pixels).last_hidden_state[:, 5:]
        torch.testing.assert_close(ours.forward_features(pixels)[:, 5:], last, atol=1e-5, rtol=1e-5)
    assert len(blocks) == 24
    for block, state in zip(blocks, hidden[1:], strict=True):
        torch.testing.assert_close(block, state[:, 5:], atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("size", [(64, 64), (250, 200), (481, 640)])
@pytest.mark.parametrize("share", [1.0, 0.95, 0.875])
def test_pixels_are_those_of_timms_own_transform(share, size):
    model = timm.create_model("test_resnet", pretrained_cfg_overlay={"crop_pct": share, "input_size": (3, 64, 64)})
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model))
    images = noise(2, *size)
    expected = torch.stack([transform(Image.fromarray(image)) for image in images])
    ours = pixel_values(timm_preprocessing(model), images, torch.device("cpu"))
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------------- identity and mistakes


def test_the_identity_tells_weights_norm_and_precision_but_no_path(both):
    _, file = both["dinov3"]
    identity = open_timm(f"tiny_dinov3@{file}").identity
    assert str(file.parent) not in json.dumps(identity)
    assert identity["class"] == "Eva"
    assert identity["final_norm"] == "norm"
    assert identity["dtype"] == "float32"
    assert len(identity["weights"]["file"]) == 64


def test_a_norm_after_pooling_does_not_count(tmp_path):
    model = timm.create_model("tiny_siglip", fc_norm=True)
    file = tiny_timm.save(model.state_dict(), tmp_path / "weights.safetensors")
    timm.models.register_model(_tiny_fc_norm)
    assert open_timm(f"_tiny_fc_norm@{file}").identity["final_norm"] == "none"


def _tiny_fc_norm(pretrained: bool = False, **options):
    return tiny_timm.tiny_siglip(pretrained, fc_norm=True, **options)


def test_every_name_of_the_table_opens_here():
    names = {name for name, address in ENCODERS.items() if address == "soopf_jax.encoders.hf_timm:open_encoder"}
    assert names == {*PUBLISHED, "timm:"}
    assert resolve("encoder", ENCODERS, "timm:anything") is open_encoder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:vit_larg_patch16_dinov3", "did you mean 'vit_large_patch16_dinov3"),
        ("timm:vit_large_patch16_dinov3.nowhere", "no weights called"),
        ("timm:test_vit@weights.bin", "no .safetensors file"),
        ("timm:test_vit@nowhere.safetensors", "there is no file"),
        ("dinov3-timm-x", "did you mean 'dinov3-timm"),
    ],
)
def test_mistakes_are_one_line(name, message):
    assert message in error_of(name)


def test_weights_of_another_model_are_refused(both):
    assert "do not load into 'tiny_dinov3'" in error_of(f"timm:tiny_dinov3@{both['dinov2'][1]}")


def test_a_missing_weight_is_refused(both, tmp_path):
    weights = load_file(both["dinov3"][1])
    weights.pop("blocks.1.norm1.weight")
    file = tiny_timm.save(weights, tmp_path / "incomplete.safetensors")
    assert "blocks.1.norm1.weight" in error_of(f"timm:tiny_dinov3@{file}")


def test_without_the_hub_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert "timm/vit_small_patch16_dinov3.lvd1689m is not in the cache" in error_of("dinov3-timm-s")


@pytest.mark.parametrize("name", ["dinov3-timm-s", "timm:vit_small_patch16_224.augreg_in21k"])
def test_a_plan_downloads_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("soopf_jax.encoders.hf_timm.from_hub", lambda *_: pytest.fail("downloads"))
    missing = opening.missing_weights(name)
    assert missing is not None
    assert re.fullmatch(rf"{name} \(timm/vit_small\S* is not in the cache of downloads\): .*", missing.remedies[0])
    assert opening.Openers().depth(name) is None
    with pytest.raises(UserError, match="a dry run downloads nothing, and timm/vit_small"):
        carry_out(Bench(encoder=name, dry_run=True))


def test_a_file_of_weights_is_no_download(tmp_path):
    assert opening.missing_weights(f"timm:test_vit@{tmp_path}/weights.safetensors") is None
    assert "did you mean" in opening.missing_weights("timm:vit_larg_patch16_dinov3").reason
