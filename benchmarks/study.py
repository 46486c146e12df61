"""What a study saves and costs, measured on this machine.

    python -m benchmarks.study                                      # a ViT-S/14 with random weights
    python -m benchmarks.study --encoder hf:FOLDER --dataset shapes3d-lite --json

`layers` compares the time to render, encode and store all layers of an encoder with the time for its output alone.
Both build stores of the same pairs in new folders and take turns. Times are CPU times of this process with all its
threads, because other processes do not change them much. The ratio is the median over rounds; the target is 1.25.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # `python -m` and the tests need this to find encode

from encode import PREPROCESSOR, first_pairs, in_memory, open_dataset

from soopf_jax import plugins
from soopf_jax.encoders.layers import ALL, named_layers
from soopf_jax.errors import UserError
from soopf_jax.features import table as features
from soopf_jax.runtime import cli
from soopf_jax.types import Encoder, EncoderRequest, Json, Substrate

VIT_S = {
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "image_size": 224,
    "patch_size": 14,
}


@dataclass
class Options:
    """Measure what a study costs beside its runs."""

    encoder: str = "vit-s"
    """Any encoder with layers, or vit-s: the architecture of DINOv2-S with random weights."""
    dataset: str = ""
    """A data set to render. Default: random images in memory, which take no time to render."""
    pairs: int = 96
    """Pairs of images per measurement."""
    rounds: int = 3
    """How often everything is measured."""
    json: bool = False
    """Print JSON instead of text."""


def main(args: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = cli.parse(Options, "benchmarks.study", args, Options())
    with tempfile.TemporaryDirectory() as folder:
        encoder = open_encoder(options.encoder, Path(folder))
        pairs = first_pairs(open_dataset(options.dataset), options.pairs) if options.dataset else None
        row = measure_layers(pairs or in_memory(options.pairs), encoder, options.rounds, Path(folder))
    if options.json:
        print(json.dumps({"encoder": options.encoder, "layers": row}, indent=1))
        return
    print(
        f"{options.encoder}, {2 * options.pairs} images, CPU time: one layer {row['one']:.1f} s, {row['layers']} layers"
        f" {row['all']:.1f} s, ratio {row['ratio']:.2f} (target 1.25)"
    )


def measure_layers(substrate: Substrate, encoder: Encoder, rounds: int, folder: Path) -> Json:
    """CPU seconds for the stores of one layer and of all layers, and the ratio of both in every round."""
    if encoder.layers is None:
        raise UserError("this encoder has no layers; choose another --encoder")
    layers = named_layers([ALL], encoder.layers.depth)
    features.build_layers(substrate, encoder, [None], cache_dir=folder / "warm-up")
    times: dict[str, list[float]] = {"one": [], "all": []}
    for number in range(rounds):
        for name, wanted in (("one", [None]), ("all", layers)):
            start = time.process_time()
            features.build_layers(substrate, encoder, wanted, cache_dir=folder / f"{name}-{number}")
            times[name].append(time.process_time() - start)
    ratios = [every / one for every, one in zip(times["all"], times["one"], strict=True)]
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return {"layers": len(layers), **seconds, "ratio": statistics.median(ratios), "ratios": ratios}


def open_encoder(name: str, folder: Path) -> Encoder:
    """The encoder of that name. For `vit-s`, a checkpoint folder without weights is written first."""
    if name == "vit-s":
        (folder / "config.json").write_text(json.dumps(VIT_S))
        (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
        name = f"hf-random:{folder}"
    return plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name))


if __name__ == "__main__":
    sys.exit(cli.run(main))
