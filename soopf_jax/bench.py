"""The command line: `python -m soopf_jax.bench`. Progress on stderr, the table on stdout, a result folder on disk."""

import contextlib
import io
import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from soopf_jax import atomic, cli, devices, features, plugins, progress, results, two_edits
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.protocol import PAPER, QUICK, Protocol, check_cells
from soopf_jax.report import page, tables
from soopf_jax.report.examples import Examples
from soopf_jax.report.naming import printable
from soopf_jax.results import Result
from soopf_jax.runner import benchmark, make_arms
from soopf_jax.train import Session
from soopf_jax.types import Encoder, EncoderRequest, FeatureTable, Json, Substrate, SubstrateRequest

PROG = "soopf_jax.bench"
EDITS = ("one", "two")

Text = Annotated[str, tyro.conf.arg(metavar="NAME")]
Optional = Annotated[str, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
"""How options look in --help: their help says what leaving them out means."""


@dataclass(frozen=True)
class Bench:
    """Train readouts of frozen encoders on a support x operation grid and score them on held-out cells.

    Without arguments: the paper's whole protocol (10 seeds x 9 held-out cells x 5 restarts, 2,000 steps) for SO-OPF with factorial, learned and compressed assignment on the built-in substrate, nothing downloaded. For a first look: --quick. Results go to a folder (--out), the table to stdout.
    """

    dataset: Text = "shapes3d-lite"
    """Where the image pairs come from: shapes3d-lite (built in), shapes3d (needs 3dshapes.h5), mujoco, coco, folder:PATH, or your own as package.module:attr."""
    encoder: Text = "pixels"
    """The frozen encoder: pixels, random-vit, random-vit-s, dinov3, dinov3-b, dinov3-s, siglip2, dinov2-l, dinov2-b, dinov2-s, clip-l, mae-b, hf:ID_OR_FOLDER, hf-random:ID_OR_FOLDER, or your own as package.module:attr."""
    features: Optional = ""
    """FILE.npz with tokens made elsewhere, instead of --dataset and --encoder: arrays source, edited, cell, supports, operations and, if known, region."""
    readout: Text = "soopf"
    """What is trained: soopf, dense, bilinear; the probes mlp, attention, oracle; or your own as package.module:attr."""
    assignment: Names = ()
    """One arm each: factorial (the grid is known), learned (from flat labels), compressed (label order), learned-sinkhorn (learned, with columns that sum to one as well; beyond the paper), or your own as package.module:attr. Default: the first three; for probes native (axis labels), their only one."""
    objective: Optional = ""
    """The loss weights: core (default), or enhanced, which adds native operation labels; native for probes; or your own as package.module:attr."""
    weight: Names = ()
    """NAME=VALUE: another weight for a loss term of the objective: cell, mask, loc, bal, axis, opinj, native."""
    operations: Names = ()
    """The operations of the grid, of hue, invert, pattern, brightness, blur; mujoco also has relight and texture. Default: the first three."""
    edits: Text = "one"
    """one: score held-out cells. two: train on all cells and read pairs with two supports edited at once, 20 of each combination; factorial assignment only, 5 seeds by default."""
    layer: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Hidden layer to read (0: embeddings). Default: the last, after the final norm."""
    dtype: Text = "float16"
    """How features are stored: float16 or float32."""
    pairs_per_cell: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """Pairs of each cell. Default: the paper's number for the data set (350; coco 300)."""
    data_seed: int = 0
    """Seeds the construction of the image pairs."""
    quick: bool = False
    """Change the defaults to 3 seeds, 2 restarts, 500 steps; explicit values win. Labelled so in every output."""
    data_root: Optional = ""
    """Folder of the original data set, where one is needed."""
    coco_split: Text = "train2017"
    """COCO split below --data-root."""
    cache_dir: Optional = ""
    """Where features are kept. Default: the user's cache folder."""
    out: Optional = ""
    """Result folder. Default: runs/DATASET-ENCODER-READOUT-HASH."""
    overwrite: bool = False
    """Replace a finished result that stands at --out."""
    resume: bool = True
    """Go on where an interrupted run of the same configuration stopped."""
    router: bool = False
    """Also train factorial fits on all cells and compare their router's masks with the true regions: mean IoU, agreement."""
    fits_per_program: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """Fits trained at once. Default: as many as pay and fit into the device's memory. Rounding depends on it."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between checkpoints, from which an interrupted run goes on."""
    distributed: bool = False
    """One run over several processes, each started with this command: under Slurm, or with JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID set; --out must lie where all of them see it."""
    protocol: tyro.conf.OmitArgPrefixes[Protocol] = field(default_factory=Protocol)
    """How every fit is trained, selected and aligned."""


NOT_RECORDED = {
    *("cache_dir", "out", "overwrite", "resume", "quick", "data_root"),
    *("fits_per_program", "checkpoint_seconds", "distributed"),
}
"""Options that say where and how a run is carried out, and change no score beyond rounding."""


class Inputs(NamedTuple):
    """Where the features come from, opened but not yet computed."""

    key: str
    """Hash of all that decides the features."""
    load: Callable[[], FeatureTable]
    substrate: Substrate | None = None
    encoder: Encoder | None = None
    """None where the tokens were made elsewhere."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, run, exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    return cli.run(lambda: run(parse(arguments)), interrupted="interrupted; run the same command again to go on")


def parse(args: Sequence[str]) -> Bench:
    """The command line; `--quick` changes defaults, and explicit values win."""
    size = PAPER
    if "--quick" in args:
        size = QUICK
    elif "--edits=two" in args or ("--edits", "two") in itertools.pairwise(args):
        size = two_edits.PAPER
    bench = cli.parse(Bench, PROG, args, Bench(protocol=Protocol(*size)))
    if bench.edits not in EDITS:
        raise unknown_name("number of edits", bench.edits, EDITS)
    if bench.edits != "one" and bench.router:
        raise UserError("--router is of pairs with one edit; leave --edits or --router out")
    if bench.fits_per_program < 0 or not bench.checkpoint_seconds >= 0:
        raise UserError("--fits-per-program and --checkpoint-seconds must not be negative")
    if bench.features:
        for option in ("--dataset", "--encoder", "--data-root"):
            if any(arg == option or arg.startswith(f"{option}=") for arg in args):
                raise UserError(f"--features brings its own tokens; leave {option} or --features out")
        if bench.edits != "one":
            raise UserError("--features has one edit per pair; leave --edits or --features out")
    return bench


def run(bench: Bench) -> None:
    """The whole path, from names to a result folder."""
    if bench.distributed:
        devices.join_processes()
    with contextlib.nullcontext() if devices.is_main() else contextlib.redirect_stdout(io.StringIO()):
        carry_out(bench)


def carry_out(bench: Bench) -> None:
    """The same in every process; the first one writes."""
    protocol, two = bench.protocol, bench.edits == "two"
    parts = bench.readout, bench.assignment, bench.objective, parse_weights(bench.weight)
    arms = [two_edits.make_arm(*parts)] if two else make_arms(*parts)  # unknown names fail before any work
    inputs = open_inputs(bench)
    config = record(bench, protocol, [opened.key for opened in inputs])
    config |= {"assignment": [arm.assignment_name for arm in arms], "objective": arms[0].objective_name}
    out = Path(bench.out) if bench.out else default_out(bench, config)
    if already_done(out, config, bench.overwrite):
        return
    atomic.check_writable(out)
    feature_tables = [opened.load() for opened in inputs]
    label = two_edits.label(protocol) if two else protocol.label
    tell(tables.headline(config, label, feature_tables[0].grid.n_cells))
    with working_on(out, config, bench.resume) as (work, waited):
        if devices.agreed(waited and already_done(out, config, bench.overwrite)):
            shutil.rmtree(work, ignore_errors=True)
            return
        experiment: Callable[..., Result] = two_edits.benchmark if two else benchmark
        result = experiment(
            *feature_tables,
            *parts,
            protocol,
            config,
            session_of(bench, work),
            lambda arm: tell("{}: {} {}".format(*tables.main_score(config, arm))),
            **({"router": True} if bench.router else {}),
        )
        if devices.is_main():
            report = page.pages(result, pictures(inputs[0], result))
            results.save(result, out, report, replace=bench.overwrite, within=work)
            shutil.rmtree(work)
    print_result(result.document)
    print(f"\nresult: {out}/result.json  report: {out}/report.html")


def tell(line: str) -> None:
    """Say how far a run is; the result is printed at its end, when it is known what can be trusted."""
    if devices.is_main():
        print(line, file=sys.stderr, flush=True)


def open_inputs(bench: Bench) -> list[Inputs]:
    """Features to train on and, with two edits, to test on: names checked, keys known, nothing computed yet."""
    pairs_per_cell = bench.pairs_per_cell or None
    if bench.pairs_per_cell < 0:
        raise UserError(f"--pairs-per-cell must be positive, not {bench.pairs_per_cell}")
    if bench.features:
        table = features.load_npz(bench.features, pairs_per_cell)
        check_cells(table.cell, table.grid)
        return [Inputs(results.digest(table.provenance), lambda: table)]
    open_substrate = plugins.resolve("dataset", plugins.SUBSTRATES, bench.dataset)
    open_encoder = plugins.resolve("encoder", plugins.ENCODERS, bench.encoder)
    request = SubstrateRequest(
        bench.dataset,
        bench.operations or None,
        pairs_per_cell,
        bench.data_seed,
        bench.data_root or None,
        bench.coco_split,
    )
    tests = [open_substrate(request._replace(pairs_per_cell=None, edits=2))] if bench.edits == "two" else []
    if any(test.identity.get("edits") != 2 for test in tests):
        raise UserError(f"dataset {bench.dataset} has no pairs with two edits; leave --edits out")
    single = open_substrate(request)
    check_cells(single.cell, single.grid)
    encoder = open_encoder(EncoderRequest(bench.encoder, bench.layer))
    return [
        Inputs(
            features.recipe(substrate, encoder, bench.dtype)["key"],
            partial(features.table, substrate, encoder, bench.dtype, bench.cache_dir or None),
            substrate,
            encoder,
        )
        for substrate in (single, *tests)
    ]


def record(bench: Bench, protocol: Protocol, features_keys: Sequence[str]) -> dict[str, Any]:
    """The configuration as the result has it: all that decides the scores, nothing about where files lie."""
    config: dict[str, Any] = {name: value for name, value in asdict(bench).items() if name not in NOT_RECORDED}
    if bench.features:
        for name in ("dataset", "encoder", "layer", "dtype", "operations", "data_seed", "coco_split"):
            del config[name]
        config["features"] = Path(bench.features).name
    keys = dict(zip(("features_key", "test_features_key"), features_keys, strict=False))
    config |= {"protocol": asdict(protocol), **keys}
    return json.loads(json.dumps(config))


def default_out(bench: Bench, config: Json) -> Path:
    """runs/<dataset>-<encoder>-<readout>-<config hash>."""
    parts = [Path(bench.features).stem] if bench.features else [_short(bench.dataset), _short(bench.encoder)]
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join([*parts, _short(bench.readout)])).strip("-.")
    return Path("runs") / f"{slug}-{results.digest(config)[:10]}"


def _short(name: str) -> str:
    """A plug-in's name for a folder's: `hf:../encoders/vit` becomes `hf-vit`."""
    kind, colon, argument = name.partition(":")
    return f"{kind}-{Path(argument).name}" if colon else name


def pictures(opened: Inputs, result: Result) -> Examples | None:
    """The images of the pairs that the report shows as examples, with what the fits made of them."""
    if opened.substrate is None or opened.encoder is None or result.readings is None:
        return None
    readings, substrate = result.readings, opened.substrate
    images = substrate.render(readings.pair.tolist())
    window = opened.encoder.window(*substrate.image_size)
    cell = substrate.cell[readings.pair]
    return Examples(
        readings.pair, cell, images.source, images.edited, window, readings.region, readings.masks, readings.energy
    )


def already_done(out: Path, config: Json, overwrite: bool) -> bool:
    """Print a finished result of the same configuration; stop at any other that would be lost."""
    if overwrite or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    document = results.load(out).document
    if document["config"] != config:
        raise UserError(f"{out} holds a run of another configuration; choose another --out or add --overwrite")
    print(printable(f"{tables.caveat(document)}already done: {out}"))
    print_result(document)
    return True


@contextlib.contextmanager
def working_on(out: Path, config: Json, resume: bool) -> Iterator[tuple[Path, bool]]:
    """The folder where finished groups of fits wait, and whether another process had to be waited for.

    Another configuration, version or device has another folder.
    """
    key = results.digest({"config": config, "environment": results.environment()})[:10]
    work = out.parent / f".{out.name}.work-{key}"
    waiting = f"waiting for another process that is working on {out}"
    with atomic.only_process(work, waiting) if devices.is_main() else contextlib.nullcontext(False) as waited:
        if devices.is_main() and not resume:
            atomic.clear(work)
        yield work, waited


def session_of(bench: Bench, work: Path) -> Session:
    """How the run is carried out."""
    bar = partial(progress.bar, unit="fit-steps") if devices.is_main() else None
    return Session(work, bar, bench.fits_per_program or None, bench.checkpoint_seconds)


def parse_weights(weights: Sequence[str]) -> dict[str, float]:
    """NAME=VALUE ... as a mapping."""
    parsed = {}
    for item in weights:
        name, _, value = item.partition("=")
        try:
            parsed[name] = float(value)
        except ValueError:
            parsed[name] = math.nan
        if not math.isfinite(parsed[name]):
            raise UserError(f"--weight takes NAME=VALUE with a finite number, not '{item}'; for example mask=0.5")
    return parsed


def print_result(document: Json) -> None:
    """The whole result on stdout; its first line says if some of it cannot be trusted."""
    summary = tables.summary_of(document["config"])
    print(printable(tables.title(document)))
    for row in (summary.header, *map(summary.row, document["arms"])):
        print(tables.line(row, summary.widths))
    print(f"chance: {tables.chance(document)}")
    for table in tables.details(document):
        print(f"\n{tables.text(table)}")
    for warning in document["warnings"]:
        print(printable(f"warning: {warning}"))


if __name__ == "__main__":
    sys.exit(main())
