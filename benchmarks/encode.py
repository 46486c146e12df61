"""Compares the speed of the feature pipeline (render, encode, check, store) with a bare loop of forward passes.

    python -m benchmarks.encode                                  # a ViT-B/14 with random weights, images in memory
    python -m benchmarks.encode --encoder random-vit --dataset shapes3d-lite --pairs 64 --json

Both encode the same batches of the same images. They take turns `--rounds` times, and the ratio is the median over
rounds. For images in memory it should be at least 0.95. With `--dataset` there is a second row, where the pipeline also
renders its images and the loop does not.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soopf_jax import plugins
from soopf_jax.features import table as features
from soopf_jax.grid import Grid
from soopf_jax.runtime import cli
from soopf_jax.types import Encoder, EncoderRequest, ImagePairs, Json, Substrate, SubstrateRequest

VIT_B = {
    "model_type": "dinov2",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 14,
}
PREPROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "resample": 3,
    "do_center_crop": False,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


@dataclass
class Options:
    """Measure the feature pipeline against a bare loop of forward passes."""

    encoder: str = "vit-b"
    """Any encoder of the benchmark, or vit-b: the architecture of DINOv2-B with random weights."""
    dataset: str = ""
    """A data set to render, for a second row."""
    pairs: int = 96
    """Pairs of images per measurement."""
    rounds: int = 3
    """How often each row is measured."""
    json: bool = False
    """Print JSON instead of the table."""


def main(args: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = cli.parse(Options, "benchmarks.encode", args, Options())
    with tempfile.TemporaryDirectory() as folder:
        encoder = open_encoder(options.encoder, Path(folder))
        substrates = {"memory": in_memory(options.pairs)}
        if options.dataset:
            substrates[options.dataset] = first_pairs(open_dataset(options.dataset), options.pairs)
        encoder.encode(np.zeros((encoder.batch_size, *substrates["memory"].image_size, 3), np.uint8))
        rows = [
            measure(name, substrate, encoder, options.rounds, Path(folder)) for name, substrate in substrates.items()
        ]
    if options.json:
        print(json.dumps({"encoder": options.encoder, "batch_size": encoder.batch_size, "rows": rows}, indent=1))
        return
    print(f"{options.encoder}, batches of {encoder.batch_size}, {2 * options.pairs} images, {options.rounds} rounds")
    print(f"{'images':<16}{'bare loop':>14}{'pipeline':>14}{'ratio':>8}")
    for row in rows:
        print(f"{row['images']:<16}{row['bare']:>12.2f}/s{row['pipeline']:>12.2f}/s{row['ratio']:>8.3f}")


def measure(name: str, substrate: Substrate, encoder: Encoder, rounds: int, folder: Path) -> Json:
    """Images per second of both. They take turns, so a change of the machine's speed affects both equally."""
    pairs = substrate.render(range(len(substrate.cell)))
    n_images = 2 * len(substrate.cell)
    size = features.recipe(substrate, encoder)["pairs_per_block"]
    bare, pipeline = [], []
    for number in range(rounds):
        start = time.perf_counter()
        for first in range(0, len(pairs.source), size):
            part = slice(first, first + size)
            images = np.concatenate([pairs.source[part], pairs.edited[part]])
            for i in range(0, len(images), encoder.batch_size):
                encoder.encode(images[i : i + encoder.batch_size])
        middle = time.perf_counter()
        features.build(substrate, encoder, cache_dir=folder / f"{name}-{number}")
        bare.append(n_images / (middle - start))
        pipeline.append(n_images / (time.perf_counter() - middle))
    ratios = [ours / theirs for ours, theirs in zip(pipeline, bare, strict=True)]
    return {
        "images": name,
        "bare": statistics.median(bare),
        "pipeline": statistics.median(pipeline),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def open_encoder(name: str, folder: Path) -> Encoder:
    """The encoder of that name. For `vit-b`, a checkpoint folder without weights is written first."""
    if name == "vit-b":
        (folder / "config.json").write_text(json.dumps(VIT_B))
        (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
        name = f"hf-random:{folder}"
    return plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name))


def open_dataset(name: str) -> Substrate:
    """The substrate of that name with its default settings."""
    return plugins.resolve("dataset", plugins.SUBSTRATES, name)(SubstrateRequest(name))


def first_pairs(substrate: Substrate, n_pairs: int) -> Substrate:
    """A substrate of the first `n_pairs` pairs."""
    return substrate._replace(cell=substrate.cell[:n_pairs])


def in_memory(n_pairs: int, side: int = 224) -> Substrate:
    """A substrate of random images that takes no time to render."""
    rng = np.random.default_rng(0)
    source, edited = rng.integers(0, 256, (2, n_pairs, side, side, 3), dtype=np.uint8)
    region = rng.integers(-1, 3, (n_pairs, side, side)).astype(np.int8)

    def render(pairs: Sequence[int]) -> ImagePairs:
        part = slice(pairs[0], pairs[-1] + 1)
        return ImagePairs(source[part], edited[part], region[part])

    grid = Grid.of(["floor", "wall", "object"], ["hue", "invert", "pattern"])
    cell = np.arange(n_pairs, dtype=np.int32) % grid.n_cells
    return Substrate(grid, cell, (side, side), {"name": "memory", "pairs": n_pairs}, render)


if __name__ == "__main__":
    sys.exit(cli.run(main))
