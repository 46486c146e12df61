"""What a study saves and costs, measured on this machine.

    python -m benchmarks.study                                      # a ViT-S/14 with random weights
    python -m benchmarks.study --encoder hf:FOLDER --dataset shapes3d-lite --json study.json

`layers` compares the time to render, encode and store all layers of an encoder with the time for its output alone.
Both build stores of the same pairs in new folders and take turns. The ratio is the median over rounds; the target is
1.25.

`runner` carries out a study of a few layers with very short training. It counts the programs that are compiled for the
first row and for all others together, which should be none. Its overhead is the time of the study that is neither
encoding nor a run (training, scores, report): planning, loading results, tables and page. It should be below 1 s per
row. The memory of the process at its peak is compared with what was there before and with the table that the plan says.

Times are CPU times of this process with all its threads, because other processes do not change them much.
"""

import contextlib
import io
import json
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))  # `python -m` and the tests need this to find encode

from encode import PREPROCESSOR, first_pairs, in_memory, open_dataset

from soopf_jax import plugins, study
from soopf_jax.encoders.layers import ALL, named_layers
from soopf_jax.errors import UserError
from soopf_jax.features import table as features
from soopf_jax.report import run_folder
from soopf_jax.runtime import cli
from soopf_jax.studies import outcome, page, planning, running
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
    """How often the layers are measured; 0: not at all."""
    rows: int = 4
    """Rows of the study that is carried out; 0: none."""
    json: str = ""
    """Also write all numbers to this file."""


def main(args: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = cli.parse(Options, "benchmarks.study", args, Options())
    found: dict[str, Any] = {"encoder": options.encoder}
    with tempfile.TemporaryDirectory() as folder:
        name = checkpoint(options.encoder, Path(folder))
        encoder = plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name))
        if options.rows:  # first, because its memory is that of a process that has done nothing yet
            found["runner"] = measure_runner(name, options.dataset or "shapes3d-lite", options.rows, Path(folder))
        if options.rounds:
            pairs = first_pairs(open_dataset(options.dataset), options.pairs) if options.dataset else None
            images = pairs or in_memory(options.pairs)
            found["layers"] = measure_layers(images, encoder, options.rounds, Path(folder))
    if options.json:
        Path(options.json).write_text(json.dumps(found | {"images": 2 * options.pairs}, indent=1) + "\n")
    print(text(found, options.pairs))


def text(found: Json, pairs: int) -> str:
    """The numbers in words."""
    lines = []
    if "runner" in found:
        row = found["runner"]
        lines.append(
            f"{found['encoder']}, study of {row['rows']} rows: {row['compiled_first']} programs compiled for the first "
            f"row, {row['compiled_later']} for all others; overhead {row['overhead_per_row']:.2f} s of CPU per row "
            f"({', '.join(f'{name} {seconds:.1f} s' for name, seconds in row['seconds'].items())}); memory "
            f"{row['before'] / 1e6:.0f} MB before, at most {row['after_first'] / 1e6:.0f} MB with one row and "
            f"{row['after_all'] / 1e6:.0f} MB with all, table of a row {row['table'] / 1e6:.0f} MB"
        )
    if "layers" in found:
        row = found["layers"]
        lines.append(
            f"{found['encoder']}, {2 * pairs} images, CPU time: one layer {row['one']:.1f} s, {row['layers']} layers "
            f"{row['all']:.1f} s, ratio {row['ratio']:.2f} (target 1.25)"
        )
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------ the runner


def measure_runner(encoder: str, dataset: str, rows: int, folder: Path) -> Json:
    """Compilations, CPU seconds and memory of a study with very short training."""
    layers = [f"{(place + 1) / rows:.3f}" for place in range(rows)]
    size = ("--pairs-per-cell", "6", "--seeds", "2", "--restarts", "1", "--steps", "20", "--assignment", "factorial")
    places = ("--out", str(folder / "study"), "--cache-dir", str(folder / "study-cache"))
    watch, original = Watch(), planning.plan
    planned: list[planning.Planned] = []

    def plan(*args: Any, **options: Any) -> list[planning.Planned]:
        planned.extend(watch.timed("planning", original)(*args, **options))
        watch.before = peak_memory()
        return planned

    with (
        watch.compilations(),
        mock.patch.object(running, "carry_out", watch.row(run_folder.carry_out)),
        mock.patch.object(running, "build_layers", watch.timed("encoding", features.build_layers)),
        mock.patch.object(planning, "plan", plan),
        mock.patch.object(outcome, "outcomes", watch.timed("results", outcome.outcomes)),
        mock.patch.object(page, "write", watch.timed("page", page.write)),
    ):
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            study.main(["--dataset", dataset, "--encoder", encoder, "--layer", *layers, *size, *places])
        seconds = time.process_time() - start
    if len(watch.compiled) < rows:
        raise UserError("a row of the study failed; its message is above")
    inside = watch.seconds["encoding"] + watch.seconds["runs"]
    return {
        "rows": rows,
        "compiled_first": watch.compiled[0],
        "compiled_later": sum(watch.compiled[1:]),
        "overhead_per_row": (seconds - inside) / rows,
        "seconds": dict(watch.seconds) | {"rest": seconds - sum(watch.seconds.values())},
        "before": watch.before,
        "after_first": watch.peaks[0],
        "after_all": watch.peaks[-1],
        "table": max(p.workload.table_bytes for p in planned if p.workload),
    }


class Watch:
    """CPU seconds, compilations and memory of the parts of a study."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.compiled: list[int] = []
        """Programs that were compiled, by row."""
        self.before = 0
        """The most memory until the plan was made."""
        self.peaks: list[int] = []
        """The most memory until the end of each row."""
        self._count = 0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose CPU seconds are added under a name."""

        def call(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] += time.process_time() - start

        return call

    def row(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What carries out one row."""
        timed = self.timed("runs", function)

        def call(*args: Any, **options: Any) -> Any:
            before = self._count
            timed(*args, **options)
            self.compiled.append(self._count - before)
            self.peaks.append(peak_memory())

        return call

    @contextlib.contextmanager
    def compilations(self) -> Iterator[None]:
        """Count the programs that XLA compiles, or that JAX takes from its cache on the disk."""
        from jax._src import monitoring

        def listen(event: str, duration_secs: float, **_: str | int) -> None:
            self._count += event == "/jax/core/compile/backend_compile_duration"

        monitoring.register_event_duration_secs_listener(listen)
        try:
            yield
        finally:
            monitoring.unregister_event_duration_listener(listen)


def peak_memory() -> int:
    """The most bytes that this process has held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ------------------------------------------------------------------------------------------------------ the layers


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


def checkpoint(name: str, folder: Path) -> str:
    """The name of the encoder. For `vit-s`, a checkpoint folder without weights is written first."""
    if name != "vit-s":
        return name
    (folder / "config.json").write_text(json.dumps(VIT_S))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    return f"hf-random:{folder}"


if __name__ == "__main__":
    sys.exit(cli.run(main))
