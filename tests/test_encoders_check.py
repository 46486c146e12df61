"""`encoders check` on a small checkpoint whose published values are worked out here, and on mutants of it."""

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from soopf_jax.encoders import __main__ as command
from soopf_jax.encoders import golden as facts
from soopf_jax.errors import UserError
from soopf_jax.types import Encoder, Window
from tests.tiny_checkpoints import MODELS, save

SETTINGS = {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 224, "width": 224}}
MEAN, STD = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(MODELS["dinov3"](), tmp_path_factory.mktemp("check") / "dinov3", SETTINGS)


@pytest.fixture
def coco(tmp_path):
    """A picture in the place of the COCO image, saved without loss under its name."""
    (tmp_path / "val2017").mkdir()
    picture = np.random.default_rng(3).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / facts.IMAGE, format="PNG")
    return tmp_path, picture


def mutant(folder, registers=4, norm=True, resample="bilinear", bgr=False) -> Encoder:
    """The whole encoder in torch, with one thing wrong."""
    model = transformers.DINOv3ViTModel.from_pretrained(folder).eval()

    def prepare(images):
        shown = torch.tensor(images[..., ::-1].copy() if bgr else images).permute(0, 3, 1, 2) / 255
        return (torch.nn.functional.interpolate(shown, (224, 224), mode=resample, antialias=True) - MEAN) / STD

    @torch.inference_mode()
    def forward(pixels):
        output = model(pixels, output_hidden_states=True)
        tokens = output.last_hidden_state if norm else output.hidden_states[-1]
        return tokens[:, 1 + registers :].numpy()

    def window(height, width):
        return Window(0.0, 0.0, float(height), float(width), 28, 28)

    return Encoder({}, lambda images: forward(prepare(images)), window, stages=(prepare, forward))


@pytest.fixture
def published(folder, coco, monkeypatch):
    """The values of the tiny checkpoint, as if they had been published."""
    tokens = mutant(folder).encode(coco[1][None])[0]
    values = tuple(map(float, tokens[0, :5]))
    golden = facts.GOLDEN["facebook/dinov3-vitl16-pretrain-lvd1689m"]._replace(values=(values,))
    monkeypatch.setattr(facts, "GOLDEN", {"facebook/dinov3-vitl16-pretrain-lvd1689m": golden})
    return golden


def test_the_right_encoder_is_recognised(folder, coco, published):
    said = command.check(f"hf:{folder}", str(coco[0]), like="dinov3")
    assert "these are the paper's weights, read as the paper's authors would read them" in said


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"registers": 3}, "wrong registers: 1 token(s) too few"),
        ({"registers": 5}, "wrong registers: 1 token(s) too many"),
        ({"norm": False}, "no final norm"),
        ({"resample": "bicubic"}, "wrong preprocessing: bicubic instead of bilinear"),
        ({"bgr": True}, "wrong preprocessing: the channels are read as BGR"),
    ],
)
def test_each_mutant_is_told_by_name(folder, coco, published, wrong, message):
    before_norm = mutant(folder, **{**wrong, "norm": False})
    found = facts.difference(mutant(folder, **wrong), lambda: before_norm, published, coco[1])
    assert found is not None
    assert found.startswith(message)


def test_other_weights_are_told_by_name(folder, coco, published, tmp_path):
    other = MODELS["dinov3"]()
    other.save_pretrained(tmp_path / "other")
    found = facts.difference(
        mutant(tmp_path / "other"), lambda: mutant(tmp_path / "other", norm=False), published, coco[1]
    )
    assert found is not None
    assert found.startswith("other weights")


def test_a_missing_image_and_unpublished_values_are_one_line(folder, tmp_path):
    with pytest.raises(UserError, match=r"there is no .*000000039769.jpg"):
        command.check(f"hf:{folder}", str(tmp_path), like="dinov3")
    with pytest.raises(UserError, match="no token values are published for siglip2"):
        command.check("siglip2", str(tmp_path))


def test_values_agree_with_those_noted_before():
    """The design notes have three of them, to four places."""
    expected = {
        "l": (-0.2114, -0.4909, -0.2571, 0.1018, 0.1545),
        "b": (-0.0825, -0.4563, -0.7280, -0.4307, -0.1529),
        "s": (-0.0388, -0.2509, -0.0164, -0.4555, 0.5716),
    }
    for size, values in expected.items():
        (found,) = facts.GOLDEN[f"facebook/dinov3-vit{size}16-pretrain-lvd1689m"].values
        np.testing.assert_allclose(found, values, atol=5.1e-5)
