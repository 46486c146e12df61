"""Finding and loading checkpoints: a hub emulated over loopback, and all that can be wrong with a folder."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from soopf_jax.encoders.hf import open_encoder
from soopf_jax.encoders.hf_architectures import HUB_IDS, UNGATED
from soopf_jax.errors import UserError
from soopf_jax.types import EncoderRequest
from tests.tiny_checkpoints import MODELS, SIZES, save

COMMIT = "0123456789abcdef0123456789abcdef01234567"

transformers.utils.logging.disable_progress_bar()


def error_of(name: str, layer: int | None = None) -> str:
    """The one line that a user sees."""
    with pytest.raises(UserError) as caught:
        open_encoder(EncoderRequest(name, layer))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------------- the hub


class Hub(BaseHTTPRequestHandler):
    """The few answers of the hub that a download needs, and its three refusals as the hub words them."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    requested: list[str] = []  # noqa: RUF012

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = self.path.partition("?")[0]
        type(self).requested.append(path)
        name = path.rpartition("/")[2]
        if "/api/models/" in path and "nobody" in path:
            self.reply(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif "/revision/" in path and not path.endswith(("/main", COMMIT)):
            self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif "/revision/" in path:
            self.reply(200, json.dumps({"id": "owner/model", "sha": COMMIT, "siblings": []}).encode())
        elif "/tree/" in path:
            listing = [{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in self.files.items()]
            self.reply(200, json.dumps(listing).encode())
        elif "gated" in path:
            self.reply(403, b"", {"X-Error-Code": "GatedRepo"})
        else:
            self.reply(200, self.files[name], {"ETag": f'"{name}"', "X-Repo-Commit": COMMIT})

    def reply(self, status, body, headers=None):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache of downloads."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch, tmp_path, cache):
    folder = save(MODELS["dinov3"](), tmp_path / "model")
    (folder / "pytorch_model.bin").write_bytes(b"never to be read")
    Hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    Hub.requested = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    yield folder
    server.shutdown()
    server.server_close()


def test_a_download_is_the_folder_of_one_commit(hub):
    images = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    encoder, local = open_encoder(EncoderRequest("hf:owner/model")), open_encoder(EncoderRequest(f"hf:{hub}"))
    assert (encoder.identity["hub_id"], encoder.identity["revision"]) == ("owner/model", COMMIT)
    assert encoder.identity["weights"] == local.identity["weights"]
    np.testing.assert_array_equal(encoder.encode(images), local.encode(images))
    assert not any("pytorch_model" in path for path in Hub.requested)


def test_a_download_can_be_pinned_to_a_revision(hub):
    assert open_encoder(EncoderRequest(f"hf:owner/model@{COMMIT}")).identity["revision"] == COMMIT
    assert "owner/model has no revision 'v9'" in error_of("hf:owner/model@v9")


def test_random_weights_need_no_download_of_weights(hub):
    encoder = open_encoder(EncoderRequest("hf-random:owner/model"))
    assert encoder.identity["revision"] == COMMIT
    assert not any("safetensors" in path for path in Hub.requested)


def test_a_gated_model_says_what_to_accept_and_how_to_log_in(hub):
    message = error_of("hf:owner/gated")
    assert "owner/gated is gated" in message
    assert f"accept its terms at {huggingface_hub.constants.ENDPOINT}/owner/gated" in message
    assert "hf auth login" in message


def test_a_gated_model_with_an_ungated_copy_names_it(hub, monkeypatch):
    assert "timm" not in error_of("hf:owner/gated")
    monkeypatch.setitem(UNGATED, "owner/gated", "dinov3-timm")
    assert error_of("hf:owner/gated").endswith("--encoder dinov3-timm")


@pytest.mark.parametrize(("name", "copy"), [("dinov3", "large"), ("dinov3-b", "base"), ("dinov3-s", "small")])
def test_the_ungated_copy_has_the_size_of_the_original(name, copy):
    timm_models = pytest.importorskip("soopf_jax.encoders.hf_timm")
    assert timm_models.PUBLISHED[UNGATED[HUB_IDS[name]]].model == f"vit_{copy}_patch16_dinov3.lvd1689m"


def test_an_unknown_model(hub):
    assert "the hub has no model 'owner/nobody'" in error_of("hf:owner/nobody")


def test_what_is_in_the_cache_needs_no_hub(hub, monkeypatch):
    first = open_encoder(EncoderRequest("hf:owner/model")).identity
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert open_encoder(EncoderRequest("hf:owner/model")).identity == first


def test_no_network(cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    message = error_of("dinov3")
    assert message.startswith("facebook/dinov3-vitl16-pretrain-lvd1689m is not in the cache of downloads")
    assert "no network" in message


def test_offline_mode(cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in error_of("siglip2")


def test_a_full_disk(cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("soopf_jax.encoders.hf_checkpoint.snapshot_download", full)
    assert "No space left on device" in error_of("hf:owner/model")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:", "a hub id or a folder must follow the colon"),
        ("hf:./nowhere", "no folder './nowhere'"),
        ("hf:two words", "'two words' is neither a folder nor a hub id"),
        ("hf:a/b/c", "'a/b/c' is neither a folder nor a hub id"),
    ],
)
def test_names_that_lead_nowhere(name, message):
    assert message in error_of(name)


# ---------------------------------------------------------------------------- the folder


@pytest.fixture
def folder(tmp_path):
    return save(MODELS["dinov3"](), tmp_path / "model")


def edit_weights(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_no_config(folder):
    (folder / "config.json").unlink()
    assert f"{folder} has no config.json" in error_of(f"hf:{folder}")


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_config_that_is_no_json_object(folder, content):
    (folder / "config.json").write_text(content)
    assert "config.json" in error_of(f"hf:{folder}")


@pytest.mark.parametrize(("config", "kind"), [({"model_type": "made-up"}, "made-up"), ({}, "None")])
def test_config_of_no_known_model(folder, config, kind):
    (folder / "config.json").write_text(json.dumps(config))
    assert f"is of a model type ('{kind}') that transformers" in error_of(f"hf:{folder}")


def test_config_with_a_faulty_value(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "dinov3_vit", "hidden_size": "wide"}))
    assert "'hidden_size' expected int, got str" in error_of(f"hf:{folder}")


def test_config_that_wants_to_run_code(folder):
    config = {"model_type": "made-up", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    assert "code from a checkpoint is never run" in error_of(f"hf:{folder}")
    assert not (folder / "ran").exists()


def test_no_safetensors(folder):
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in error_of(f"hf:{folder}")


def test_a_missing_part_of_a_split_checkpoint(tmp_path):
    split = save(MODELS["dinov3"](), tmp_path / "split", max_shard_size="20KB")
    lost = sorted(split.glob("*.safetensors"))[1]
    lost.unlink()
    assert f"lacks {lost.name}" in error_of(f"hf:{split}")


def test_missing_weights(folder):
    edit_weights(folder, lambda weights: weights.pop("layer.1.mlp.up_proj.weight"))
    message = error_of(f"hf:{folder}")
    assert "lacks weights, such as model.layer.1.mlp.up_proj.weight (1 in all)" in message


@pytest.mark.parametrize("name", ["classifier.weight", "embeddings.extra_token", "text_model.weight"])
def test_unexpected_weights(folder, name):
    """DINOv3 has no other parts, so that anything beyond its own weights is a mistake."""
    edit_weights(folder, lambda weights: weights.update({name: torch.ones(3)}))
    assert f"has unexpected weights, such as {name} (1 in all)" in error_of(f"hf:{folder}")


def test_weights_of_another_shape(folder):
    edit_weights(folder, lambda weights: weights.update({"norm.weight": torch.ones(31)}))
    assert "has weights of another shape, such as norm.weight (1 in all)" in error_of(f"hf:{folder}")


def test_truncated_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "cannot be loaded" in error_of(f"hf:{folder}")


def test_no_preprocessor(folder):
    (folder / "preprocessor_config.json").unlink()
    assert "has no preprocessor_config.json" in error_of(f"hf:{folder}")


def test_preprocessor_inside_a_processor_config(folder):
    """What newer versions of transformers write for models with text."""
    settings = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings, "processor_class": "Any"}))
    identity = open_encoder(EncoderRequest(f"hf:{folder}")).identity
    assert identity["preprocessing"]["processor"] == "SiglipImageProcessor"


# ---------------------------------------------------------------------------- the model


@pytest.mark.parametrize(
    "config",
    [
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1]),
        transformers.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),
        transformers.SwinConfig(
            image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 1], window_size=4
        ),
        transformers.ASTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),
        transformers.VideoMAEConfig(**SIZES),
    ],
    ids=lambda config: config.model_type,
)
def test_models_without_one_token_per_patch(config, tmp_path):
    config.save_pretrained(tmp_path)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    message = error_of(f"hf-random:{tmp_path}")
    assert "gives no patch tokens" in message or "not one per patch" in message


def test_images_of_a_size_that_the_model_does_not_take(tmp_path):
    folder = save(MODELS["vit-with-head"](), tmp_path / "vit", {"image_processor_type": "ViTImageProcessor"})
    assert "(224*224) doesn't match model (32*32)" in error_of(f"hf:{folder}")


@pytest.mark.parametrize("layer", [4, -5, 99])
def test_layers_that_do_not_exist(folder, layer):
    assert f"there is no layer {layer}; choose 0 (embeddings) to 3" in error_of(f"hf:{folder}", layer)
