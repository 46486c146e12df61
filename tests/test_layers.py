"""All layers from one forward pass: the same stores, byte for byte, as one layer at a time."""

from pathlib import Path

import numpy as np
import pytest

from soopf_jax.encoders import hf, random_vit
from soopf_jax.encoders.layers import at_layer, named_layers, relative_depth
from soopf_jax.errors import UserError
from soopf_jax.features import store, store_writer
from soopf_jax.features import table as features
from soopf_jax.features.encode import encode_blocks
from soopf_jax.types import Encoder, EncoderRequest, Substrate, SubstrateRequest
from tests import tiny_checkpoints, tiny_parts

LAYERS = [1, 2, 3, None]


def tiny_substrate(pairs_per_cell: int = 8) -> Substrate:
    """72 pairs: blocks of 32, 32 and 8."""
    return tiny_parts.open_substrate(SubstrateRequest("tiny", pairs_per_cell=pairs_per_cell))


def tiny_encoder(layer: int | None = None) -> Encoder:
    return tiny_parts.open_layered(EncoderRequest("tiny-layered", layer))


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def counting(encoder: Encoder, calls: list[list[int | None]], fail_at: int | None = None) -> Encoder:
    """The encoder, which notes the layers of every forward pass and may fail at one of them."""

    def forward(prepared, layers):
        if len(calls) == fail_at:
            raise KeyboardInterrupt
        calls.append(list(layers))
        return encoder.layers.forward(prepared, layers)

    return encoder._replace(layers=encoder.layers._replace(forward=forward))


# ---------------------------------------------------------------------------------------------- the stores


def test_one_pass_makes_the_stores_that_single_builds_make(tmp_path):
    rendered = []
    substrate = tiny_substrate()
    counted = substrate._replace(render=lambda pairs: rendered.extend(pairs) or substrate.render(pairs))
    calls: list = []
    together = features.build_layers(counted, counting(tiny_encoder(), calls), LAYERS, cache_dir=tmp_path / "together")
    assert calls == [LAYERS] * 9, "144 images in batches of 16, each encoded once for all layers"
    assert rendered == list(range(72))
    for layer, folder in zip(LAYERS, together, strict=True):
        alone = features.build(substrate, tiny_encoder(layer), cache_dir=tmp_path / "alone")
        assert alone.name == folder.name
        assert content(alone) == content(folder)
        assert store.verify(folder) == []
    shift = features.load(together[2]).source.astype(float) - features.load(together[0]).source
    np.testing.assert_allclose(shift, 20, atol=1)  # two blocks; half precision has steps of 0.5 near 1000


def test_only_layers_that_are_missing_are_encoded(tmp_path):
    substrate = tiny_substrate()
    features.build(substrate, tiny_encoder(2), cache_dir=tmp_path)
    calls: list = []
    first = features.build_layers(substrate, counting(tiny_encoder(), calls), [1, 2], cache_dir=tmp_path)
    assert calls == [[1]] * 9
    again = features.build_layers(substrate, counting(tiny_encoder(), calls), [1, 2], cache_dir=tmp_path)
    assert again == first
    assert len(calls) == 9


@pytest.mark.parametrize("fail_at", [1, 5, 8])
def test_an_interrupted_pass_goes_on_and_ends_with_the_same_bytes(tmp_path, fail_at):
    substrate = tiny_substrate()
    expected = features.build_layers(substrate, tiny_encoder(), LAYERS, cache_dir=tmp_path / "whole")
    calls: list = []
    broken = counting(tiny_encoder(), calls, fail_at)
    with pytest.raises(KeyboardInterrupt):
        features.build_layers(substrate, broken, LAYERS, cache_dir=tmp_path / "broken")
    found = features.build_layers(substrate, tiny_encoder(), LAYERS, cache_dir=tmp_path / "broken")
    assert [content(folder) for folder in found] == [content(folder) for folder in expected]


def test_layers_with_different_numbers_of_finished_blocks_are_brought_together(tmp_path):
    substrate = tiny_substrate()
    one = features.build(substrate, tiny_encoder(1), cache_dir=tmp_path / "alone")
    wanted = features.recipe(substrate, tiny_encoder(1))
    begun = store_writer.begin(store.store_folder(wanted, tmp_path), wanted)
    store_writer.append(begun, *next(encode_blocks(substrate, tiny_encoder(1), 0, 32, 16, "float16")))
    calls: list = []
    found = features.build_layers(substrate, counting(tiny_encoder(), calls), [1, 2], cache_dir=tmp_path)
    assert calls == [[2]] * 4 + [[1, 2]] * 5, "the first block of layer 1 was there, made of four batches"
    assert content(found[0]) == content(one)


def test_a_store_that_was_begun_with_other_batches_gets_a_pass_of_its_own(tmp_path):
    substrate, encoder = tiny_substrate(), tiny_encoder()
    small = at_layer(encoder, 1)._replace(batch_size=8)
    wanted = features.recipe(substrate, small)
    store_writer.begin(store.store_folder(wanted, tmp_path), wanted)
    calls: list = []
    first, second = features.build_layers(substrate, counting(encoder, calls), [1, 2], cache_dir=tmp_path)
    assert calls == [[1]] * 18 + [[2]] * 9
    assert store.open_store(first).manifest["images_per_batch"] == 8
    assert store.open_store(second).manifest["images_per_batch"] == 16


def test_progress_counts_each_image_once(tmp_path):
    counted = []

    class Bar:
        def __enter__(self):
            return counted.append

        def __exit__(self, *_):
            pass

    totals = []
    features.build_layers(
        tiny_substrate(), tiny_encoder(), LAYERS, "float16", tmp_path, lambda _, total: totals.append(total) or Bar()
    )
    assert totals == [144]
    assert sum(counted) == 144


# -------------------------------------------------------------------------------------------- the encoders


@pytest.mark.parametrize("name", ["dinov3", "clip", "mae-with-decoder", "beit"])
def test_layers_of_hf_are_bit_for_bit_those_of_encoders_opened_for_one(tmp_path, name):
    folder = tiny_checkpoints.save(tiny_checkpoints.MODELS[name](), tmp_path / name)
    check_layers(lambda layer: hf.open_encoder(EncoderRequest(f"hf:{folder}", layer)), depth=3)


@pytest.mark.parametrize("name", ["dinov3", "siglip"])
def test_layers_of_timm_are_bit_for_bit_those_of_encoders_opened_for_one(tmp_path, name):
    timm = pytest.importorskip("timm", reason="timm comes with the extra [timm]")
    from soopf_jax.encoders import hf_timm
    from tests import tiny_timm

    file = tiny_timm.save(timm.create_model(f"tiny_{name}").state_dict(), tmp_path / "w.safetensors")
    request = EncoderRequest(f"timm:tiny_{name}@{file}")
    check_layers(lambda layer: hf_timm.open_encoder(request._replace(layer=layer)), depth=3)


def test_layers_of_the_random_vit_are_those_of_encoders_opened_for_one(monkeypatch):
    monkeypatch.setitem(random_vit.SHAPES, "random-vit-s", random_vit.Shape(width=32, depth=2, heads=2))
    check_layers(lambda layer: random_vit.open_encoder(EncoderRequest("random-vit-s", layer)), depth=2)


def check_layers(open_at, depth: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    encoder = open_at(None)
    assert encoder.layers.depth == depth
    prepare = encoder.stages[0] if encoder.stages else lambda given: given
    layers = [None, 0, 1, depth]
    together = encoder.layers.forward(prepare(images), layers)
    assert len({tokens.tobytes() for tokens in together[1:]}) == 3, "layers differ"
    for layer, tokens in zip(layers, together, strict=True):
        alone = open_at(layer)
        assert alone.identity == encoder.layers.identity(layer) == at_layer(encoder, layer).identity
        np.testing.assert_array_equal(alone.encode(images), tokens)
        np.testing.assert_array_equal(at_layer(encoder, layer).encode(images), tokens)


# --------------------------------------------------------------------------------------- what a user means


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        (["all"], list(range(1, 13))),
        (["last"], [None]),
        (["all", "last"], [*range(1, 13), None]),
        (["6", "12", "-1"], [6, 12]),
        (["0.25", "0.5", "0.75", "1.0"], [3, 6, 9, 12]),
        (["0", "0.0"], [0]),
        (["-13"], [0]),
    ],
)
def test_names_of_layers(names, layers):
    assert named_layers(names, 12) == layers


@pytest.mark.parametrize("name", ["13", "-14", "1.5", "-0.5", "first", "nan", "1e1", ""])
def test_layers_that_do_not_exist(name):
    with pytest.raises(UserError, match="there is no layer"):
        named_layers([name], 12)


def test_relative_depth():
    assert [relative_depth(layer, 12) for layer in (0, 3, 12, None)] == [0, 0.25, 1, 1]
