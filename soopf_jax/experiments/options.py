"""A run as its options: the record behind `python -m soopf_jax.bench`, and behind every run that is planned.

An option that was not given is None, False or empty. Its default is filled in where it is read, because it can depend
on other options: `--quick` and `--edits two` have sizes of their own. This module imports no JAX: `--help` and most
mistakes are answered at once.
"""

import itertools
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.fitting.protocol import PAPER, PRESETS, QUICK, Choices, Protocol
from soopf_jax.fitting.selection import KEEP
from soopf_jax.runtime.hashing import digest, slug
from soopf_jax.runtime.help import Groups
from soopf_jax.runtime.text import is_address

SIZES = ("seeds", "restarts", "steps")
DATASET, ENCODER, READOUT = "shapes3d-lite", "pixels", "soopf"
ASSIGNMENTS = ("factorial", "learned", "compressed")
"""The arms of a run that names none; a probe has `native` alone."""
PAPER_SIZES: Mapping[str, tuple[int, int, int]] = {"one": PAPER, "two": (5, 5, 2000)}
"""The paper's seeds, restarts and steps, by the name of the experiment: the value of --edits."""


DATASET_HELP = (
    f"Where the image pairs come from: {plugins.listed(plugins.SUBSTRATES)}. The original data sets, shapes3d and"
    f" coco, need --data-root; soopf data fetch NAME downloads them. Default: {DATASET}."
)
ENCODER_HELP = f"The frozen encoder: {plugins.listed(plugins.ENCODERS)}. Default: {ENCODER}."
READOUT_HELP = f"What is trained: {plugins.listed(plugins.READOUTS)}. Default: {READOUT}."
ASSIGNMENT_HELP = (
    f"One arm each: {plugins.listed(plugins.ASSIGNMENTS)}. With factorial, a readout knows the grid; with learned, it"
    " has flat labels; with compressed, it has them in order. Not in the paper: the columns of learned-sinkhorn sum to"
    " one as well; matched decides the grid before training, by the similarity of flat labels; searched begins there"
    " and chooses by short training."
    f" Probes have native alone, which has axis labels. Default: {', '.join(ASSIGNMENTS)}."
)
OBJECTIVE_HELP = (
    f"The loss weights: {plugins.listed(plugins.OBJECTIVES)}. With enhanced, the operation labels are trained on too."
    " Default: core; for a probe native."
)

KEEP_HELP = (
    "What the result keeps of every selected fit. none: its scores. predictions: the energies of every pair too,"
    " from which every score can be computed again. all: the parameters too. Default: predictions, up to 256 MB."
)


def _arg(metavar: str, text: str | None = None) -> Any:
    """How an option looks in --help."""
    return tyro.conf.arg(metavar=metavar, help=text)


Text = Annotated[str, tyro.conf.arg(metavar="NAME")]
File = Annotated[str | None, _arg("FILE")]
Folder = Annotated[str | None, _arg("DIR")]
Names = Annotated[tuple[str, ...], _arg("NAME ...")]
Count = Annotated[int | None, _arg("INT")]


@dataclass(frozen=True)
class Bench:
    """Train readouts of frozen encoders on a support x operation grid and score them on held-out cells.

    Without options, this is the paper's whole protocol on the built-in data set, and nothing is downloaded. Give
    --quick for a first look.

    The paper's protocol has 10 seeds x 9 held-out cells x 5 restarts of 2,000 steps, with factorial, learned and
    compressed assignment. Results go to a folder (--out), the table goes to stdout and progress to stderr.
    """

    dataset: Annotated[str | None, _arg("NAME", DATASET_HELP)] = None
    encoder: Annotated[str | None, _arg("NAME", ENCODER_HELP)] = None
    features: File = None
    """Tokens made elsewhere, instead of --dataset and --encoder. A .npz file with the arrays source, edited, cell,
    supports, operations and, if known, region; or a feature pack or store, as its folder or address."""
    readout: Annotated[str | None, _arg("NAME", READOUT_HELP)] = None
    assignment: Annotated[tuple[str, ...], _arg("NAME ...", ASSIGNMENT_HELP)] = ()
    objective: Annotated[str | None, _arg("NAME", OBJECTIVE_HELP)] = None
    weight: Annotated[tuple[str, ...], _arg("NAME=VALUE ...")] = ()
    """Another weight for a loss term of the objective: cell, mask, loc, bal, axis, opinj, native."""
    operations: Names = ()
    """The operations of the grid: some of hue, invert, pattern, brightness, blur; mujoco also has relight and texture.
    Default: the first three."""
    edits: Text = "one"
    """Edits per pair: one scores held-out cells, two reads pairs with two edited supports. With two, fits are trained
    on all cells, with factorial assignment, and read 20 pairs of each combination."""
    layer: Count = None
    """Hidden layer to read. 0: the embeddings. Default: the last, after its norm."""
    dtype: Text = "float16"
    """How features are stored: float16 or float32."""
    pairs_per_cell: Annotated[int, _arg("INT")] = 0
    """Pairs of each cell. Default: the paper's 350; coco 300."""
    data_seed: int = 0
    """Seeds the construction of the image pairs."""
    stripe_unit: Text = "cycles"
    """What the frequency of stripes counts per pixel: cycles or radians. The paper does not say."""
    stripe_size: Annotated[int, _arg("INT")] = 0
    """Width of the image whose pixels that frequency counts, such as 224. Default: the image that is edited (64; mujoco
    and coco 256)."""
    router: bool = False
    """Compare the masks of routers that have seen all cells with the true regions. That takes further fits, with
    factorial assignment; the scores are mean IoU and agreement."""
    quick: bool = False
    """A first look: 3 seeds, 2 restarts, 500 steps. Values that you give win. Every output says so."""
    seeds: Count = None
    """Seeds 0 to N-1. With --edits two, 5 are the paper's. Default: 10; with --quick 3."""
    restarts: Count = None
    """Fits per seed and cell. The one with the best validation accuracy counts. Default: 5; with --quick 2."""
    steps: Count = None
    """Adam steps per fit. Default: 2000; with --quick 500."""
    preset: Text = "paper"
    """All further choices: paper or ours. The first is the paper's words, read literally; ours is
    --router-input rms --alignment soft. Values that you give win."""
    choices: tyro.conf.OmitArgPrefixes[Choices] = field(default_factory=Choices)
    """How every fit is trained, selected and aligned."""
    data_root: Folder = None
    """Folder of the original data set, where one is needed."""
    cache_dir: Folder = None
    """Where features are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache
    folder."""
    out: Folder = None
    """Result folder. Default: below runs, named after what is run."""
    keep: Annotated[str | None, _arg("NAME", KEEP_HELP)] = None
    log: Text = plugins.NO_LOGGER
    """Where the finished run is logged besides: trackio or wandb. Default: none."""
    overwrite: bool = False
    """Replace a finished result that stands at --out."""
    resume: bool = True
    """Go on where an interrupted run of the same configuration stopped."""
    fits_per_program: Annotated[int, _arg("INT")] = 0
    """Fits trained at once. Default: chosen for speed, within the device's memory. Rounding depends on it."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between checkpoints, from which an interrupted run goes on."""
    wide: bool = False
    """Print every column of the tables, although the terminal is too narrow for them."""
    dry_run: bool = False
    """Train nothing. Say how many fits would train at once, and how much memory they need."""
    target: Annotated[str | None, _arg("NAME")] = None
    """With --dry-run: a GPU to plan for instead of this machine: h100, a100 or rtx4060. It needs the extra cuda12, but
    no GPU."""
    distributed: bool = False
    """One run over several processes. Each is started with this command, under Slurm or with JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID set. --out must lie where all of them see it."""

    @property
    def dataset_name(self) -> str:
        """The data set that was given, or the default."""
        return DATASET if self.dataset is None else self.dataset

    @property
    def encoder_name(self) -> str:
        """The encoder that was given, or the default."""
        return ENCODER if self.encoder is None else self.encoder

    @property
    def readout_name(self) -> str:
        """The readout that was given, or the default."""
        return READOUT if self.readout is None else self.readout

    @property
    def protocol(self) -> Protocol:
        """Every choice, with the sizes of the experiment, or of --quick, where none were given.

        Raises:
            UserError: A choice is out of its range, or the experiment is unknown.
        """
        if self.edits not in PAPER_SIZES:
            raise unknown_name("number of edits", self.edits, PAPER_SIZES)
        defaults = QUICK if self.quick else PAPER_SIZES[self.edits]
        given = (self.seeds, self.restarts, self.steps)
        seeds, restarts, steps = (d if value is None else value for value, d in zip(given, defaults, strict=True))
        return Protocol(seeds, restarts, steps, **asdict(self.choices))


OF_CHOICES = tuple(option.name for option in fields(Choices))
"""The options that are grouped in `Bench.choices`."""
ONLY_IF_GIVEN = ("stripe_unit", "stripe_size")
"""Options that are recorded only if they are not at their defaults, as runs from before they existed are."""
HELP = Groups(
    {
        "data": ("dataset", "data_root", "features", "operations", "pairs_per_cell", "data_seed", *ONLY_IF_GIVEN),
        "encoder": ("encoder", "layer", "dtype"),
        "readout": ("readout", "assignment", "objective", "weight"),
        "protocol": (*("quick", *SIZES, "preset", "edits", "router"), *(option.name for option in fields(Choices))),
        "where and how": (
            *(
                "out",
                "keep",
                "log",
                "overwrite",
                "wide",
                "cache_dir",
                "resume",
                "checkpoint_seconds",
                "fits_per_program",
            ),
        ),
    },
    usual={
        *("dataset", "data_root", "features", "pairs_per_cell", "encoder", "layer", "readout", "assignment"),
        *("quick", *SIZES, "preset", "edits", "out"),
    },
)
"""How --help presents the options."""
NOT_RECORDED = {
    *("quick", *SIZES, "preset", "choices"),  # the protocol, which is recorded as a whole, has them
    *("data_root", "cache_dir", "out", "overwrite", "resume", "keep", "log"),
    *("fits_per_program", "checkpoint_seconds", "wide", "dry_run", "target", "distributed"),
}
"""Options that are not recorded by themselves. Those of the other lines say where and how a run is carried out, and
change no score beyond rounding."""
NOT_OF_FEATURES = ("dataset", "encoder", "layer", "dtype", "operations", "data_seed", *ONLY_IF_GIVEN)
"""Options that have no meaning for tokens that were made elsewhere."""


def defaults(args: Sequence[str]) -> Bench:
    """The defaults of a command line: those of the preset that it names.

    Raises:
        UserError: There is no such preset.
    """
    words = [word for arg in args for word in arg.split("=", 1)]
    named = [value for option, value in itertools.pairwise(words) if option == "--preset"]
    preset = named[-1] if named else Bench.preset
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    return Bench(preset=preset, choices=PRESETS[preset])


def check(bench: Bench) -> Bench:
    """The options, if they can be used together; nothing is opened yet.

    Raises:
        UserError: An option has an impossible value, or two of them exclude each other.
    """
    _ = bench.protocol  # raises a UserError if a choice is impossible
    parse_weights(bench.weight)
    check_names(bench)
    if bench.edits != "one" and bench.router:
        raise UserError("--router works on pairs with one edit; leave --edits or --router out")
    if bench.fits_per_program < 0 or not bench.checkpoint_seconds >= 0:
        raise UserError("--fits-per-program and --checkpoint-seconds must not be negative")
    if bench.keep is not None and bench.keep not in KEEP:
        raise unknown_name("--keep", bench.keep, KEEP)
    if bench.target and not bench.dry_run:
        raise UserError("--target is for plans; add --dry-run, or leave --target out to run on this machine")
    if bench.pairs_per_cell < 0:
        raise UserError(f"--pairs-per-cell must be positive, not {bench.pairs_per_cell}")
    if bench.features:
        for name in ("dataset", "encoder", "data_root"):
            if getattr(bench, name) is not None:
                option = _option(name)
                raise UserError(f"--features brings its own tokens; leave {option} or --features out")
        if bench.edits != "one":
            raise UserError("--features has one edit per pair; leave --edits or --features out")
        if not is_address(bench.features) and not Path(bench.features).expanduser().exists():
            raise UserError(f"features file {bench.features}: there is no such file; check the path")
    return bench


def check_names(bench: Bench) -> None:
    """Check the names of all plug-ins and of the logger. Nothing is imported.

    Raises:
        UserError: A name is not in its table and does not have the form package.module:attr, or the logger is missing.
    """
    plugins.find("dataset", plugins.SUBSTRATES, bench.dataset_name)
    plugins.find("encoder", plugins.ENCODERS, bench.encoder_name)
    plugins.find("readout", plugins.READOUTS, bench.readout_name)
    for name in bench.assignment:
        plugins.find("assignment", plugins.ASSIGNMENTS, name)
    if bench.objective:
        plugins.find("objective", plugins.OBJECTIVES, bench.objective)
    if bench.log not in plugins.LOGGERS:
        raise unknown_name("logger", bench.log, plugins.LOGGERS)
    if bench.log != plugins.NO_LOGGER:
        plugins.require(f"logger '{bench.log}'", plugins.LOGGERS[bench.log])


def parse_weights(weights: Sequence[str]) -> dict[str, float]:
    """`NAME=VALUE ...` as a mapping.

    Raises:
        UserError: An item has another form, or a value that is not a finite number.
    """
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


# ---------------------------------------------------------------------------------------------- what is recorded


def record(bench: Bench, features_keys: Sequence[str]) -> dict[str, Any]:
    """The configuration as the result has it: all that decides the scores, nothing about where files lie.

    Args:
        bench: The options of the run.
        features_keys: The keys of the features to train on and, with two edits, of those to test on.
    """
    recorded = {f.name for f in fields(bench)} - NOT_RECORDED - (set(ONLY_IF_GIVEN) - given(bench).keys())
    config: dict[str, Any] = {f.name: getattr(bench, f.name) for f in fields(bench) if f.name in recorded}
    if bench.features:
        config = {name: value for name, value in config.items() if name not in NOT_OF_FEATURES}
    else:
        config |= {"dataset": bench.dataset_name, "encoder": bench.encoder_name}
    config |= {"features": Path(bench.features or "").name, "readout": bench.readout_name}
    keys = dict(zip(("features_key", "test_features_key"), features_keys, strict=False))
    protocol = bench.protocol
    return json.loads(json.dumps(config | {"preset": protocol.preset, "protocol": asdict(protocol), **keys}))


def from_record(config: Mapping[str, Any]) -> Bench | None:
    """The options of a recorded configuration: `record` read backwards.

    Returns:
        Options that give the same configuration again. None if the configuration does not name a readout and where its
        pairs come from, because the run was started from Python.
    """
    if not config.get("readout") or not (config.get("features") or config.get("dataset")):
        return None
    protocol, edits = config["protocol"], config.get("edits", "one")
    recorded = {f.name for f in fields(Bench)} - NOT_RECORDED
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.items() if name in recorded
    }
    sizes = tuple(protocol[name] for name in SIZES)
    usual = PAPER_SIZES.get(edits, PAPER)
    changed = {name: size for name, size, paper in zip(SIZES, sizes, usual, strict=True) if size != paper}
    options |= {"quick": True} if sizes == tuple(QUICK) else changed
    choices = {f.name: protocol[f.name] for f in fields(Choices) if f.name in protocol}
    options |= {"features": config.get("features") or None, "choices": Choices(**choices)}
    return Bench(**options)


def default_out(bench: Bench, config: Mapping[str, Any]) -> Path:
    """runs/<dataset>-<encoder>-<readout>-<config hash>."""
    source = [Path(bench.features).stem] if bench.features else [_short(bench.dataset_name), _short(bench.encoder_name)]
    name = slug("-".join([*source, _short(bench.readout_name)]))
    return Path("runs") / f"{name}-{digest(config)[:10]}"


def _short(name: str) -> str:
    """A plug-in's name as a part of a folder's name: `hf:../encoders/vit` becomes `hf-vit`."""
    kind, colon, argument = name.partition(":")
    return f"{kind}-{Path(argument).name}" if colon else name


# ------------------------------------------------------------------------------------------------ as one types it


def given(bench: Bench) -> dict[str, Any]:
    """The options that are not at their defaults, by name, in the order of --help."""
    default = Bench(choices=PRESETS[bench.preset])
    found: dict[str, Any] = {}
    for option in fields(Bench):
        value, usual = getattr(bench, option.name), getattr(default, option.name)
        if isinstance(value, Choices):
            found |= {name: chosen for name, chosen in asdict(value).items() if chosen != getattr(usual, name)}
        elif value != usual:
            found[option.name] = value
    return found


def changed(bench: Bench, options: Mapping[str, Any]) -> Bench:
    """The options with some of them changed, those that are grouped in `choices` included."""
    of_choices = {name: value for name, value in options.items() if name in OF_CHOICES}
    others = {name: value for name, value in options.items() if name not in OF_CHOICES}
    return replace(bench, **others, choices=replace(bench.choices, **of_choices))


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as the words of a command line: `{"router": True, "seeds": 3}` becomes `--router --seeds 3`."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(_option(name) if value else _option(f"no_{name}"))
        elif isinstance(value, tuple):
            words += [_option(name), *value]
        else:
            words += [_option(name), str(value).removesuffix(".0") if isinstance(value, float) else str(value)]
    return words


def command(bench: Bench) -> str:
    """The command line that does this run."""
    return f"python -m soopf_jax.bench {shlex.join(arguments(given(bench)))}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
