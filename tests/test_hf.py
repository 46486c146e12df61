"""Patch tokens of tiny checkpoints of the real classes against what those classes give themselves."""

import ast
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import soopf_jax
from soopf_jax.encoders.hf import open_encoder
from soopf_jax.encoders.hf_architectures import HUB_IDS, UNTRAINED
from soopf_jax.errors import UserError
from soopf_jax.features import table as features
from soopf_jax.plugins import ENCODERS, resolve
from soopf_jax.substrates.shapes3d_lite import open_substrate
from soopf_jax.types import EncoderRequest, SubstrateRequest, Window
from tests.tiny_checkpoints import MODELS, PREPROCESSOR, SIZES, save

REAL = Path(__file__).parents[2] / "shared/encoders/vits14-imgfocus"

PREFIX = {"dinov3": 5, "dinov2-registers": 5, "siglip": 0, "siglip-with-text": 0, "ijepa": 0, "deit": 2}
"""Tokens before the patches, from the model's papers: class, distillation and register tokens; all others have one."""

transformers.utils.logging.disable_progress_bar()


def noise(count: int = 3, height: int = 64, width: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def open_folder(folder: Path, layer: int | None = None, name: str = "hf"):
    return open_encoder(EncoderRequest(f"{name}:{folder}", layer))


def hub_pixels(images: np.ndarray, settings: dict = PREPROCESSOR) -> torch.Tensor:
    processor = transformers.ViTImageProcessorPil(**settings)
    return torch.stack([processor(Image.fromarray(image), return_tensors="pt")["pixel_values"][0] for image in images])


def own_output(folder: Path, images: np.ndarray):
    """What the class itself gives, with hidden states; the vision tower where there are two."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    towers = {"clip": transformers.CLIPVisionModel, "siglip": transformers.SiglipVisionModel}
    with torch.inference_mode():
        model = towers.get(kind, transformers.AutoModel).from_pretrained(folder).eval()
        return model(hub_pixels(images), output_hidden_states=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {name: save(make(), root / name) for name, make in MODELS.items()}


# ---------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mae-with-decoder"])
def test_tokens_are_the_class_s_own_output_without_prefix(folders, name):
    images = noise()
    tokens = open_folder(folders[name]).encode(images)
    expected = own_output(folders[name], images).last_hidden_state[:, PREFIX.get(name, 1) :].numpy()
    assert tokens.shape == (3, 16, 32)
    assert tokens.dtype == np.float32
    np.testing.assert_allclose(tokens, expected, atol=2e-5)


def test_mae_tokens_are_neither_masked_nor_shuffled(folders):
    """The encoder run by hand: embed, add positions, put the class token first, all blocks, the final norm."""
    images = noise()
    folder = folders["mae-with-decoder"]
    model = transformers.ViTMAEModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        positions = model.embeddings.position_embeddings
        patches = model.embeddings.patch_embeddings(hub_pixels(images)) + positions[:, 1:]
        first = (model.embeddings.cls_token + positions[:, :1]).expand(len(images), -1, -1)
        state = torch.cat([first, patches], dim=1)
        for block in model.layers:
            state = block(state, None)
        expected = model.layernorm(state)[:, 1:].numpy()
    np.testing.assert_allclose(open_folder(folder).encode(images), expected, atol=2e-5)
    np.testing.assert_allclose(open_folder(folder, layer=0).encode(images), patches.numpy(), atol=2e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mae-with-decoder"])
def test_layers_are_the_hidden_states_and_only_the_default_is_normed(folders, name):
    images = noise(1)
    hidden = own_output(folders[name], images).hidden_states
    for layer in (0, 2, -1):
        expected = hidden[layer][:, PREFIX.get(name, 1) :].numpy()
        np.testing.assert_allclose(open_folder(folders[name], layer).encode(images), expected, atol=2e-5)


@pytest.mark.parametrize(("name", "norm"), [("dinov3", "norm"), ("siglip", "post_layernorm"), ("clip", None)])
def test_the_last_layer_comes_before_the_final_norm(folders, name, norm):
    images = noise(1)
    last, default = (torch.tensor(open_folder(folders[name], layer).encode(images)) for layer in (-1, None))
    kind = {"dinov3": "DINOv3ViTModel", "siglip": "SiglipVisionModel", "clip": "CLIPVisionModel"}[name]
    model = getattr(transformers, kind).from_pretrained(folders[name])
    with torch.inference_mode():
        expected = last if norm is None else model.get_submodule(norm)(last)
    torch.testing.assert_close(default, expected, atol=2e-5, rtol=0)
    assert (norm is None) == torch.equal(default, last)


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_row_major(folders, name):
    """Embeddings see one patch each: brightening patch (2, 1) of 4 x 4 changes token 9 and no other."""
    dark = np.zeros((1, 32, 32, 3), np.uint8)
    bright = dark.copy()
    bright[:, 16:24, 8:16] = 255
    encode = open_folder(folders[name], layer=0).encode
    changed = np.abs(encode(bright) - encode(dark)).max(axis=2)[0]
    assert np.flatnonzero(changed > 1e-6).tolist() == [9]


def test_tokens_are_row_major_in_a_wide_grid(tmp_path):
    wide = {**PREPROCESSOR, "image_processor_type": "DINOv3ViTImageProcessor", "size": {"height": 32, "width": 48}}
    encoder = open_folder(save(MODELS["dinov3"](), tmp_path / "wide", {**wide, "resample": 2}), layer=0)
    assert encoder.window(64, 96) == Window(0.0, 0.0, 64.0, 96.0, 4, 6)
    dark = np.zeros((1, 64, 96, 3), np.uint8)
    bright = dark.copy()
    bright[:, 48:64, 64:80] = 255  # patch (3, 4) of 4 x 6; the resize smears less than a pixel into its neighbours
    changed = np.abs(encoder.encode(bright) - encoder.encode(dark)).max(axis=2)[0]
    assert changed.argmax() == 3 * 6 + 4


def test_dinov3_preprocessing_is_its_own(tmp_path):
    """Rescale, then antialiased bilinear on floats, then normalise: with torch directly, as torchvision does."""
    settings = {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 64, "width": 64}}
    folder = save(MODELS["dinov3"](), tmp_path / "dinov3", settings)
    images = noise(2, 100, 80)
    floats = torch.tensor(images).permute(0, 3, 1, 2) / 255
    resized = torch.nn.functional.interpolate(floats, (64, 64), mode="bilinear", antialias=True)
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    with torch.inference_mode():
        model = transformers.DINOv3ViTModel.from_pretrained(folder).eval()
        expected = model((resized - mean) / std).last_hidden_state[:, 5:].numpy()
    assert expected.shape == (2, 8 * 8, 32)
    np.testing.assert_allclose(open_folder(folder).encode(images), expected, atol=2e-5)


def test_tokens_do_not_depend_on_the_batch(folders):
    encoder = open_folder(folders["dinov3"])
    images = noise(encoder.batch_size + 3, 32, 32)
    alone = np.concatenate([encoder.encode(images[[i]]) for i in (0, 2, encoder.batch_size, -1)])
    np.testing.assert_allclose(encoder.encode(images)[[0, 2, encoder.batch_size, -1]], alone, atol=2e-5)


def test_two_threads_may_encode_at_once(folders):
    encode = open_folder(folders["mae-with-decoder"], layer=1).encode
    batches = [noise(4)[i:] for i in range(4)] * 3
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(encode, batches))
    for tokens, images in zip(together, batches, strict=True):
        np.testing.assert_allclose(tokens, encode(images), atol=2e-5)


# ---------------------------------------------------------------------------- identity


def test_equal_files_are_the_same_encoder_wherever_they_lie(folders, tmp_path):
    copy = shutil.copytree(folders["dinov3"], tmp_path / "elsewhere")
    one, two = open_folder(folders["dinov3"]).identity, open_folder(copy).identity
    assert one == two
    assert "elsewhere" not in json.dumps(two)
    assert one["class"] == "DINOv3ViTModel"
    assert one["preprocessing"]["order"] == "resize-uint8-first"


def test_weights_are_identified_by_sha256(folders):
    listed = subprocess.run(
        ["sha256sum", "model.safetensors"], cwd=folders["clip"], capture_output=True, text=True, check=True
    )
    assert open_folder(folders["clip"]).identity["weights"] == {"model.safetensors": listed.stdout.split()[0]}


@pytest.mark.parametrize("change", ["weights", "config", "preprocessor", "layer"])
def test_whatever_decides_the_tokens_changes_the_identity(folders, tmp_path, change):
    copy = shutil.copytree(folders["dinov3"], tmp_path / "changed")
    if change == "weights":
        model = transformers.DINOv3ViTModel.from_pretrained(copy)
        with torch.no_grad():
            model.norm.bias[0] += 1e-3
        model.save_pretrained(copy)
    elif change in ("config", "preprocessor"):
        file, key, value = {
            "config": ("config.json", "rope_theta", 99.0),
            "preprocessor": ("preprocessor_config.json", "resample", 2),
        }[change]
        content = json.loads((copy / file).read_text())
        (copy / file).write_text(json.dumps({**content, key: value}))
    changed = open_folder(copy, layer=2 if change == "layer" else None).identity
    assert changed != open_folder(folders["dinov3"]).identity


# ---------------------------------------------------------------------------- other ways to store weights


def test_float16_checkpoints_are_computed_in_float32(tmp_path):
    folder = save(MODELS["dinov2"]().half(), tmp_path / "half")
    model = transformers.Dinov2Model.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(hub_pixels(noise(1))).last_hidden_state[:, 1:].numpy()
    np.testing.assert_allclose(open_folder(folder).encode(noise(1)), expected, atol=2e-5)


def test_split_checkpoints_give_the_same_tokens(folders, tmp_path):
    split = save(MODELS["dinov3"](), tmp_path / "split", max_shard_size="20KB")
    assert not (split / "model.safetensors").exists()
    encoder = open_folder(split)
    assert len(encoder.identity["weights"]) == len(list(split.glob("*.safetensors"))) > 1
    whole = open_folder(folders["dinov3"])
    np.testing.assert_array_equal(encoder.encode(noise(1)), whole.encode(noise(1)))


# ---------------------------------------------------------------------------- untrained weights


@pytest.mark.parametrize("name", ["dinov3", "clip-with-text", "mae-with-decoder", "beit"])
def test_random_weights_are_drawn_by_the_class_from_a_fixed_seed(folders, tmp_path, name):
    """A config.json is enough; torch's own generator is left alone."""
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folders[name] / "config.json", bare)
    shutil.copy(folders[name] / "preprocessor_config.json", bare)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two = (open_folder(bare, name="hf-random") for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(one.encode(noise(1)), two.encode(noise(1)))
    assert one.identity == two.identity
    assert one.identity["weights"] == {"random_seed": 0}
    assert np.abs(one.encode(noise(1)) - open_folder(folders[name]).encode(noise(1))).max() > 0.1


def test_random_weights_equal_a_direct_draw(folders):
    config = transformers.DINOv3ViTConfig(**SIZES, num_register_tokens=4)
    torch.manual_seed(0)
    with torch.inference_mode():
        expected = transformers.DINOv3ViTModel(config).eval()(hub_pixels(noise(1))).last_hidden_state[:, 5:].numpy()
    tokens = open_folder(folders["dinov3"], name="hf-random").encode(noise(1))
    np.testing.assert_allclose(tokens, expected, atol=2e-5)


def test_random_weights_without_a_preprocessor_take_the_usual_one(tmp_path):
    transformers.DINOv3ViTConfig(**SIZES, num_register_tokens=4).save_pretrained(tmp_path)
    preprocessing = open_folder(tmp_path, name="hf-random").identity["preprocessing"]
    assert preprocessing["processor"] == "DINOv3ViTImageProcessor"
    assert preprocessing["order"] == "rescale-first"
    assert preprocessing["resize"] == (224, 224)


@pytest.mark.parametrize("name", ["siglip-with-text", "clip", "mae-with-decoder", "deit"])
def test_random_weights_without_a_preprocessor_take_images_of_the_config_s_size(folders, tmp_path, name):
    shutil.copy(folders[name] / "config.json", tmp_path)
    encoder = open_folder(tmp_path, name="hf-random")
    assert encoder.window(64, 96) == Window(0.0, 0.0, 64.0, 96.0, 4, 4)
    assert encoder.encode(noise(2, 64, 96)).shape == (2, 16, 32)


def test_dinov3_s_architecture_opens_untrained_without_any_file(monkeypatch):
    """At a tiny size, with the tokens of a model that transformers makes from the same numbers."""
    sizes = {**SIZES, "num_register_tokens": 4, "image_size": 224, "patch_size": 16}
    monkeypatch.setitem(UNTRAINED, "random-dinov3-l", {"model_type": "dinov3_vit", **sizes})
    encoder = open_encoder(EncoderRequest("random-dinov3-l"))
    torch.manual_seed(0)
    model = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**sizes)).eval()
    images = noise(2, 224, 224)
    mean, sd = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    pixels = torch.from_numpy(((images / 255 - mean) / sd).transpose(0, 3, 1, 2).astype(np.float32))
    with torch.inference_mode():
        expected = model(pixels).last_hidden_state[:, 5:].numpy()
    np.testing.assert_allclose(encoder.encode(images), expected, atol=1e-4)
    assert encoder.identity["name"] == "random-dinov3-l"
    assert encoder.identity["weights"] == {"random_seed": 0}
    assert (encoder.identity["hub_id"], encoder.identity["class"]) == (None, "DINOv3ViTModel")


def test_the_untrained_dinov3_has_the_size_of_the_papers_checkpoint():
    """DINOv3's model card: ViT-L/16 distilled has 300 M parameters, ViT-S/16 has 21 M."""
    for name, millions in (("random-dinov3-l", 300), ("random-dinov3-s", 21)):
        with torch.device("meta"):
            model = transformers.DINOv3ViTModel(transformers.AutoConfig.for_model(**UNTRAINED[name]))
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.03)


# ---------------------------------------------------------------------------- the whole


def test_every_name_of_the_table_opens_here():
    names = {name for name, address in ENCODERS.items() if address == "soopf_jax.encoders.hf:open_encoder"}
    assert names == {*HUB_IDS, *UNTRAINED, "hf:", "hf-random:"}
    assert resolve("encoder", ENCODERS, "hf:package.module:attr") is open_encoder
    with pytest.raises(UserError, match="did you mean 'dinov3'"):
        open_encoder(EncoderRequest("dinov4"))


def test_only_hf_modules_import_torch():
    for path in Path(soopf_jax.__path__[0]).rglob("*.py"):
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {alias.name for node in nodes for alias in node.names} | {getattr(node, "module", "") for node in nodes}
        torches = {name for name in names if name and name.split(".")[0] in ("torch", "transformers")}
        assert not torches or path.name.startswith("hf") or path.name == "torch_module.py", path


def test_opening_a_checkpoint_prints_nothing(folders):
    """Nor a progress bar, nor a table of the text tower that is left out."""
    program = (
        "import numpy as np; from soopf_jax.encoders.hf import EncoderRequest, open_encoder;"
        f"open_encoder(EncoderRequest('hf:{folders['clip-with-text']}')).encode(np.zeros((1, 32, 32, 3), np.uint8))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(not REAL.is_dir(), reason="the pretrained ViT-S/14 of ../shared/encoders is not here")
def test_a_pretrained_checkpoint():
    images = noise(2, 256, 256)
    encoder = open_folder(REAL)
    processor = transformers.BitImageProcessorPil.from_pretrained(REAL)
    pixels = torch.stack([processor(image, return_tensors="pt")["pixel_values"][0] for image in images])
    with torch.inference_mode():
        model = transformers.Dinov2Model.from_pretrained(REAL, dtype=torch.float32).eval()
        expected = model(pixels).last_hidden_state[:, 1:].numpy()
    assert encoder.window(256, 256) == Window(0.0, 0.0, 256.0, 256.0, 16, 16)
    np.testing.assert_allclose(encoder.encode(images), expected, atol=1e-4)


@pytest.mark.slow
def test_vit_large_of_dinov3_s_exact_configuration(tmp_path):
    config = transformers.DINOv3ViTConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_register_tokens=4,
        patch_size=16,
        image_size=224,
        rope_theta=100.0,
    )
    config.save_pretrained(tmp_path)
    torch.manual_seed(0)
    model = transformers.DINOv3ViTModel(config).eval()
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]

    @torch.inference_mode()
    def direct(images):
        floats = torch.tensor(images).permute(0, 3, 1, 2) / 255
        resized = torch.nn.functional.interpolate(floats, (224, 224), mode="bilinear", antialias=True)
        output = model((resized - mean) / std).last_hidden_state
        assert output.shape == (len(images), 1 + 4 + 196, 1024)
        return output[:, 5:].numpy()

    encoder = open_folder(tmp_path, name="hf-random")
    images = noise(2, 256, 256)
    np.testing.assert_allclose(encoder.encode(images), direct(images), atol=1e-4)

    substrate = open_substrate(SubstrateRequest("shapes3d-lite", operations=("hue", "invert"), pairs_per_cell=1))
    table = features.load(features.build(substrate, encoder, "float32", tmp_path / "cache"))
    pairs = substrate.render(range(6))
    assert table.source.shape == (6, 196, 1024)
    np.testing.assert_allclose(table.source, direct(pairs.source), atol=1e-4)
    np.testing.assert_allclose(table.delta, direct(pairs.edited) - direct(pairs.source), atol=2e-4)
