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
    READOUT_HELP,
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


def main(args: Sequence[str] | None = None) -> int:
    """Parse the command line and take the census. Returns the exit code."""
    interrupted = "interrupted; run the same command again to go on"
    return cli.run(lambda: run(cli.parse(Options, PROG, args, Options())), interrupted=interrupted)


def run(options: Options) -> None:
    """Take a census, or show the one that is at --out already.

    Raises:
        UserError: The options ask for something that cannot be done here.
    """
    bench = options.bench
    if options.sample < 0:
        raise UserError(f"--sample must not be negative, not {options.sample}")
    from soopf_jax.experiments.census import Extent, take_census
    from soopf_jax.experiments.inputs import open_inputs, recorded
    from soopf_jax.fitting.train import Session
    from soopf_jax.report import census as report
    from soopf_jax.report.run_folder import working_on
    from soopf_jax.runtime import atomic, progress
    from soopf_jax.runtime.arrays import npz_bytes

    (opened,) = open_inputs(bench)
    config = recorded(bench, [opened]) | {"held_out": list(options.held_out), "sample": options.sample}
    named = default_out(bench, config)
    out = Path(options.out) if options.out else named.with_name(f"census-{named.name}")
    if finished(out, config):
        print(f"already done: {out}\n{report.text(json.loads((out / DOCUMENT).read_bytes()))}")
        return
    atomic.check_writable(out)
    table = opened.load(partial(progress.bar, unit="images"))
    extent = Extent(options.sample, cells_of(options.held_out, table.grid.cell_names))
    with working_on(out, config, resume=True) as (work, _):
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


def finished(out: Path, config: dict[str, object]) -> bool:
    """Whether the census with this configuration is at `out`.

    Raises:
        UserError: Something else is there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        same = json.loads((out / DOCUMENT).read_bytes())["config"] == config
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise UserError(f"{out} holds something else; choose another --out")
    return True


def cells_of(names: Sequence[str], cell_names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of cells by their names.

    Raises:
        UserError: There is no cell of this name.
    """
    for name in names:
        if name not in cell_names:
            raise unknown_name("cell", name, cell_names)
    return tuple(cell_names.index(name) for name in names)


if __name__ == "__main__":
    sys.exit(main())
