"""The command line: `python -m soopf_jax.bench`. Progress on stderr, the table on stdout, a result folder on disk."""

import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from soopf_jax import atomic, cli, features, plugins, progress, results, two_edits
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.protocol import PAPER, QUICK, Protocol, check_cells
from soopf_jax.report import page, tables
from soopf_jax.results import Result
from soopf_jax.runner import benchmark, make_arms
from soopf_jax.types import EncoderRequest, FeatureTable, Json, SubstrateRequest

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
    """One arm each: factorial (the grid is known), learned (from flat labels), compressed (label order), or your own as package.module:attr. Default: these three; for probes native (axis labels), their only one."""
    objective: Optional = ""
    """The loss weights: core (default), or enhanced, which adds native operation labels; native for probes."""
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
    seeds: int = PAPER[0]
    """Seeds 0 to N-1."""
    restarts: int = PAPER[1]
    """Fits per seed and held-out cell; the one with the best validation accuracy counts."""
    steps: int = PAPER[2]
    """Adam steps per fit."""
    batch_size: int = 64
    """Pairs per step; 0: all optimisation pairs."""
    learning_rate: float = 5e-3
    """Adam's."""
    tau_start: float = 2.0
    """Temperature of the operation posterior at the first step."""
    tau_end: float = 0.5
    """Temperature at the last step and in evaluation."""
    router_width: int = 64
    """Width of the router."""
    hidden: int = 64
    """Hidden units of the operation MLP."""
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


class Inputs(NamedTuple):
    """Where the features come from, opened but not yet computed."""

    key: str
    """Hash of all that decides the features."""
    load: Callable[[], FeatureTable]


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
    bench = cli.parse(Bench, PROG, args, Bench(seeds=size[0], restarts=size[1], steps=size[2]))
    if bench.edits not in EDITS:
        raise unknown_name("number of edits", bench.edits, EDITS)
    if bench.features:
        for option in ("--dataset", "--encoder", "--data-root"):
            if any(arg == option or arg.startswith(f"{option}=") for arg in args):
                raise UserError(f"--features brings its own tokens; leave {option} or --features out")
        if bench.edits != "one":
            raise UserError("--features has one edit per pair; leave --edits or --features out")
    return bench


def run(bench: Bench) -> None:
    """The whole path, from names to a result folder."""
    protocol = Protocol(**{name: getattr(bench, name) for name in Protocol.__dataclass_fields__})
    two = bench.edits == "two"
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
    experiment: Callable[..., Result] = two_edits.benchmark if two else benchmark
    label, summary = two_edits.label(protocol) if two else protocol.label, tables.summary_of(config)
    print(tables.headline(config, label, feature_tables[0].grid.n_cells))
    print(tables.line(summary.header, summary.widths), flush=True)
    work = work_folder(out, config, bench.resume)
    result = experiment(
        *feature_tables,
        *parts,
        protocol,
        config,
        work,
        partial(progress.bar, unit="fit-steps"),
        lambda arm: print(tables.line(summary.row(arm), summary.widths), flush=True),
    )
    results.save(result, out, page.pages(result), replace=bench.overwrite)
    shutil.rmtree(work)
    print_details(result.document)
    print(f"\nresult: {out}/result.json  report: {out}/report.html")


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
        )
        for substrate in (single, *tests)
    ]


def record(bench: Bench, protocol: Protocol, features_keys: Sequence[str]) -> dict[str, Any]:
    """The configuration as the result has it: all that decides the scores, nothing about where files lie."""
    where = {"cache_dir", "out", "overwrite", "resume", "quick", "data_root", *Protocol.__dataclass_fields__}
    config: dict[str, Any] = {name: value for name, value in asdict(bench).items() if name not in where}
    if bench.features:
        for name in ("dataset", "encoder", "layer", "dtype", "operations", "data_seed", "coco_split"):
            del config[name]
        config["features"] = Path(bench.features).name
    if bench.edits == "one":
        del config["edits"]  # so that results from before there was a choice are found again
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


def already_done(out: Path, config: Json, overwrite: bool) -> bool:
    """Print a finished result of the same configuration; stop at any other that would be lost."""
    if overwrite or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    document = results.load(out).document
    if document["config"] != config:
        raise UserError(f"{out} holds a run of another configuration; choose another --out or add --overwrite")
    print(f"already done: {out}")
    print(tables.title(document))
    print(tables.text(tables.summary(document), tables.summary_of(config).widths))
    print_details(document)
    return True


def work_folder(out: Path, config: Json, resume: bool) -> Path:
    """Where finished groups of fits wait; another configuration, version or device has another folder."""
    key = results.digest({"config": config, "environment": results.environment()})[:10]
    work = out.parent / f".{out.name}.work-{key}"
    if not resume:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    return work


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


def print_details(document: Json) -> None:
    """What follows the summary on stdout."""
    print(f"chance: {tables.chance(document)}")
    for table in tables.details(document):
        print(f"\n{tables.text(table)}")
    for warning in document["warnings"]:
        print(f"warning: {warning}")


if __name__ == "__main__":
    sys.exit(main())
