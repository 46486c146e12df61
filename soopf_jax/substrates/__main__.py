"""The command line for data sets.

`python -m soopf_jax.substrates DATASET` draws a contact sheet, which is a picture with a few pairs of every cell, and
prints what the edits change and where. `python -m soopf_jax.substrates fetch DATASET` downloads an original data set.
"""

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import atomic, cli
from soopf_jax.runtime.progress import bar
from soopf_jax.substrates.coco_files import find_files, split_of
from soopf_jax.substrates.look.contact_sheet import draw_sheet
from soopf_jax.substrates.look.measure import Survey, edited_supports, survey
from soopf_jax.substrates.originals.fetch import fetch, parts_of
from soopf_jax.types import Substrate, SubstrateRequest

PROG = "soopf_jax.substrates"
EDITS = {"one": 1, "two": 2}
Folder = Annotated[str, tyro.conf.arg(metavar="DIR")]
DATASET_HELP = f"Where the image pairs come from: {plugins.listed(plugins.SUBSTRATES)}."


@dataclass(frozen=True)
class Look:
    """Draw a contact sheet of a data set and print what its edits change.

    The sheet has one row per cell of the grid. For each pair it shows the source image, the edited image, their
    absolute difference and the region of every support. To download an original data set instead, see
    soopf data fetch --help.
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET", help=DATASET_HELP)] = "shapes3d-lite"
    operations: tuple[str, ...] = ()
    """The operations of the grid. Default: the data set's own three."""
    edits: str = "one"
    """Edits per pair: one, or two at once on two supports."""
    pairs_per_cell: int = 0
    """Pairs of each cell. Default: the paper's number for the data set."""
    data_seed: int = 0
    """Seeds the construction of the image pairs."""
    stripe_unit: str = "cycles"
    """What the frequency of stripes counts per pixel: cycles or radians."""
    stripe_size: int = 0
    """Width of the image whose pixels that frequency counts. Default: the image that is edited."""
    data_root: Folder = ""
    """Folder of the original data set, where one is needed."""
    columns: int = 3
    """How many pairs of each cell to show; they are the first ones."""
    tile: int = 128
    """Approximate width and height of each image in pixels; images are scaled by whole factors only."""
    all_pairs: bool = False
    """Measure and hash all pairs, not only those shown."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """The file for the picture. Default: DATASET.png in the current folder."""


@dataclass(frozen=True)
class Fetch:
    """Download an original data set from its official address, check it and unpack it.

    The download uses https, and every file is compared with its known size and checksum. After an interruption, the
    same command continues where it stopped.
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """shapes3d (0.3 GB), coco (train2017, 20 GB) or coco:val2017 (1 GB)."""
    data_root: Folder = "data"
    """Folder to put the files in; give bench the same folder as --data-root."""
    keep_zips: bool = False
    """Keep the zip files after unpacking."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments[:1] == ["fetch"]:
        again = "interrupted; run the same command again to go on"
        return cli.run(lambda: run_fetch(cli.parse(Fetch, f"{PROG} fetch", arguments[1:])), interrupted=again)
    return cli.run(lambda: run_look(cli.parse(Look, PROG, arguments)), interrupted="interrupted; nothing was written")


# ------------------------------------------------------------------------------------------------- fetch


def run_fetch(options: Fetch) -> None:
    """Download a data set, then check that the substrate finds the files that it needs."""
    root = Path(options.data_root).expanduser()
    fetch(parts_of(options.dataset), root, options.keep_zips)
    if options.dataset.partition(":")[0] == "coco":
        find_files(options.data_root, split_of(options.dataset))
    print(f"use it with --dataset {options.dataset} --data-root {options.data_root}")


# -------------------------------------------------------------------------------------------------- look


def run_look(options: Look) -> None:
    """Open the data set, write its contact sheet and print the numbers."""
    out = picture_path(options)
    substrate = open_substrate(options)
    rows = first_pairs(substrate, options.columns)
    shown = sorted(pair for row in rows.values() for pair in row)
    pairs = list(range(len(substrate.cell))) if options.all_pairs else shown
    with bar(f"rendering {options.dataset}", len(pairs), "pairs") as advance:
        found = survey(substrate, pairs, set(shown), advance)
    kept = {name: [found.kept[pair] for pair in row] for name, row in rows.items()}
    png = io.BytesIO()
    draw_sheet(title(options, substrate), substrate.grid.supports, kept, options.tile).save(png, "PNG", optimize=True)
    try:
        atomic.write_bytes(out, png.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another --out") from error
    print_numbers(options, substrate, pairs, found)
    print(f"picture: {out}")


def picture_path(options: Look) -> Path:
    """The path of the picture. It is checked here, before any work is done."""
    if min(options.columns, options.tile) < 1:
        raise UserError(f"--columns {options.columns} --tile {options.tile}: both must be at least 1")
    if options.pairs_per_cell < 0:
        raise UserError(f"--pairs-per-cell must be positive, not {options.pairs_per_cell}")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", options.dataset).strip("-.")
    out = Path(options.out or f"{name}.png").expanduser()
    if out.suffix.lower() != ".png" or out.is_dir():
        raise UserError(f"--out {out} is not the name of a PNG file; end it with .png")
    atomic.check_writable(out)
    return out


def open_substrate(options: Look) -> Substrate:
    """The substrate that the options ask for."""
    if options.edits not in EDITS:
        raise unknown_name("number of edits", options.edits, EDITS)
    request = SubstrateRequest(
        options.dataset,
        options.operations or None,
        options.pairs_per_cell or None,
        options.data_seed,
        options.data_root or None,
        EDITS[options.edits],
        options.stripe_unit,
        options.stripe_size or None,
    )
    substrate: Substrate = plugins.resolve("dataset", plugins.SUBSTRATES, options.dataset)(request)
    return substrate


def cell_names(substrate: Substrate) -> tuple[str, ...]:
    """The names of the numbers in `substrate.cell`."""
    return substrate.grid.combination_names(substrate.identity.get("edits", 1))


def first_pairs(substrate: Substrate, columns: int) -> dict[str, list[int]]:
    """The numbers of the first pairs of each cell, at most `columns` of them."""
    rows = {}
    for cell, name in enumerate(cell_names(substrate)):
        rows[name] = np.flatnonzero(substrate.cell == cell)[:columns].tolist()
        if not rows[name]:
            raise UserError(f"the data set has no pair of {name}; every support must occur with every operation")
    return rows


def title(options: Look, substrate: Substrate) -> str:
    """The name of the data set, followed by its version, seed and number of edits where its identity holds them."""
    said = [name for name in ("version", "data_seed", "edits") if name in substrate.identity]
    words = [f"{name.replace('_', ' ')} {substrate.identity[name]}" for name in said]
    return ", ".join([options.dataset, *words, f"soopf_jax {metadata.version('soopf_jax')}"])


def print_numbers(options: Look, substrate: Substrate, pairs: Sequence[int], found: Survey) -> None:
    """Print the number of pairs, and the changes, shares, ranges and hash of the pairs that were rendered."""
    grid, measures = substrate.grid, found.measures
    size = "{1} x {0}".format(*substrate.image_size)
    n_all, cell = len(substrate.cell), substrate.cell[list(pairs)]
    print(f"{title(options, substrate)}: {n_all} pairs of {size} pixels")
    what = "all pairs" if len(pairs) == n_all else f"the {len(pairs)} pairs shown"
    print(f"measured: {what}; changes in grey levels")
    names = cell_names(substrate)
    width = max(map(len, ("cell", *names)))
    print(f"{'cell':{width}}  pairs  change inside  outside  pixels changed  region")
    for number, (name, supports) in enumerate(zip(names, edited_supports(substrate), strict=True)):
        of_cell = cell == number
        inside, outside, changed = (values[of_cell].mean() for values in measures[:3])
        n_pairs = np.count_nonzero(substrate.cell == number)
        share = measures.shares[of_cell][:, supports].sum(axis=1).mean()
        print(f"{name:{width}}  {n_pairs:5}  {inside:13.2f}  {outside:7.3g}  {changed:14.3f}  {share:6.3f}")
    shares = zip((*grid.supports, "none"), measures.shares.mean(axis=0), strict=True)
    print("region shares: " + ", ".join(f"{name} {share:.3f}" for name, share in shares))
    for name, values in (("source", measures.source_range), ("edited", measures.edited_range)):
        print(f"{name} values: {values.min()} to {values.max()}")
    print(f"sha256 of {what} (each one's source, edited, region, in order): {found.sha256}")


if __name__ == "__main__":
    sys.exit(main())
