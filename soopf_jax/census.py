"""`soopf census`: train a readout under every grid that flat labels could have, and say where the true one ranks.

The output is a folder with census.json, census.npz, report.html and the figure. An interrupted census goes on where it
stopped.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.experiments.options import (
    DATASET_HELP,
    ENCODER_HELP,
    OF_CHOICES,
    READOUT_HELP,
    SIZES,
    Bench,
    Count,
    File,
    Folder,
    Names,
    check,
    default_out,
)
from soopf_jax.fitting.protocol import Choices
from soopf_jax.runtime import cli
from soopf_jax.runtime.help import Groups

PROG = "soopf_jax.census"
DOCUMENT = "census.json"


@dataclass(frozen=True)
class Options:
    """Train a readout under every grid that flat labels could have. Where does the true grid rank?

    On a 3 x 3 grid there are 10,080 grids for each held-out cell. A larger grid is sampled: the true grid, those that
    differ from it by one swap, and random ones. Training is short, and all grids share splits, minibatches and initial
    values.
    """

    dataset: Annotated[str | None, tyro.conf.arg(metavar="NAME", help=DATASET_HELP)] = None
    encoder: Annotated[str | None, tyro.conf.arg(metavar="NAME", help=ENCODER_HELP)] = None
    features: File = None
    """A .npz file with tokens made elsewhere, instead of --dataset and --encoder."""
    readout: Annotated[str | None, tyro.conf.arg(metavar="NAME", help=READOUT_HELP)] = None
    objective: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The loss weights. Default: core."""
    operations: Names = ()
    """The operations of the grid. Default: those of the data set."""
    layer: Count = None
    """Hidden layer to read. Default: the last, after the final norm."""
    pairs_per_cell: int = 0
    """Pairs of each cell; 0: the data set's own number."""
    data_seed: int = 0
    """Seeds the construction of the image pairs."""
    held_out: Names = ()
    """Held-out cells, such as floor/hue. Default: every cell."""
    sample: int = 0
    """Random grids beside the true one and its neighbours; 0: all grids, or 1,000 if there are more than 20,000."""
    seeds: int = 1
    """Seeds 0 to N-1."""
    restarts: int = 1
    """Fits per grid, over which losses are averaged."""
    steps: int = 200
    """Adam steps per fit."""
    choices: tyro.conf.OmitArgPrefixes[Choices] = field(default_factory=Choices)
    """How every fit is trained."""
    data_root: Folder = None
    """Folder of the original data set, where one is needed."""
    cache_dir: Folder = None
    """Where features are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache
    folder."""
    out: Folder = None
    """Output folder. Default: runs/census-DATASET-ENCODER-READOUT-HASH."""
    fits_per_program: int = 0
    """Fits trained at once. Default: chosen for speed, within the device's memory."""

    @property
    def bench(self) -> Bench:
        """The run whose features and protocol the census has."""
        own = ("held_out", "sample")
        return check(Bench(**{name: value for name, value in vars(self).items() if name not in own}))


HELP = Groups(
    {
        "data": ("dataset", "data_root", "features", "operations", "pairs_per_cell", "data_seed"),
        "encoder": ("encoder", "layer"),
        "readout": ("readout", "objective"),
        "grids": ("held_out", "sample"),
        "protocol": (*SIZES, *OF_CHOICES),
        "where and how": ("out", "cache_dir", "fits_per_program"),
    },
    usual={
        *("dataset", "data_root", "features", "pairs_per_cell", "encoder", "layer", "readout"),
        *("held_out", "sample", *SIZES, "out"),
    },
)
"""How --help presents the options."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and take the census. Returns the exit code."""
    interrupted = "interrupted; run the same command again to go on"
    return cli.run(lambda: run(cli.parse(Options, PROG, args, Options(), HELP)), interrupted=interrupted)


def run(options: Options) -> None:
    """Take a census, or show the one that is at --out already.

    Raises:
        UserError: The options ask for something that cannot be done here.
    """
    bench = options.bench
    if options.sample < 0:
        raise UserError(f"--sample must not be negative, not {options.sample}")
    from soopf_jax.experiments.census import Extent, check_no_probe, take_census
    from soopf_jax.experiments.inputs import open_inputs, recorded
    from soopf_jax.fitting.train import Session
    from soopf_jax.report import census as report
    from soopf_jax.report.run_folder import working_on
    from soopf_jax.runtime import atomic, progress
    from soopf_jax.runtime.arrays import npz_bytes

    check_no_probe(bench.readout_name)
    (opened,) = open_inputs(bench)
    config = recorded(bench, [opened]) | {"held_out": list(options.held_out), "sample": options.sample}
    named = default_out(bench, config)
    out = Path(options.out) if options.out else named.with_name(f"census-{named.name}")
    if shown(out, config):
        return
    grid = (opened.substrate or opened.load(None)).grid
    extent = Extent(options.sample, cells_of(options.held_out, grid.cell_names))
    atomic.check_writable(out)
    table = opened.load(partial(progress.bar, unit="images"))
    with working_on(out, config, resume=True) as (work, waited):
        if waited and shown(out, config):
            atomic.remove(work)
            return
        bar = partial(progress.bar, unit="fit-steps")
        session = Session(work, bar, options.fits_per_program or None, config=config)
        census = take_census(table, bench.protocol, extent, bench.readout_name, bench.objective, session)
        with atomic.new_folder(out, within=work) as folder:
            text = json.dumps(census.document, indent=1, allow_nan=False) + "\n"
            files = {DOCUMENT: text.encode(), "census.npz": npz_bytes(census.columns), **report.files(census)}
            for name, data in files.items():
                (folder / name).write_bytes(data)
        atomic.remove(work)
    print(f"{report.text(census.document)}\n\ncensus: {out}/{DOCUMENT}  report: {out}/report.html")


def shown(out: Path, config: dict[str, object]) -> bool:
    """Print the census at `out` if it has this configuration.

    Returns:
        Whether it was printed.

    Raises:
        UserError: Something else is there.
    """
    from soopf_jax.report import census as report

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        document = json.loads((out / DOCUMENT).read_bytes())
        same = document["config"] == config
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise UserError(f"{out} holds something else; choose another --out")
    print(f"already done: {out}\n{report.text(document)}")
    return True


def cells_of(names: Sequence[str], cell_names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of cells by their names, each once.

    Raises:
        UserError: There is no cell of this name.
    """
    for name in names:
        if name not in cell_names:
            raise unknown_name("cell", name, cell_names)
    return tuple(cell_names.index(name) for name in dict.fromkeys(names))


if __name__ == "__main__":
    sys.exit(main())
