"""The command line for data: `python -m soopf_jax.substrates DATASET` looks at it, `... fetch NAME` downloads it.

A look is a contact sheet, a few pairs of every cell as a picture, and on stdout what the edits change and where.
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

from soopf_jax import atomic, cli, plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.progress import bar
from soopf_jax.substrates.contact_sheet import draw_sheet
from soopf_jax.substrates.fetch import DEFAULT_SPLIT, fetch, parts_of
from soopf_jax.substrates.measure import Survey, edited_supports, survey
from soopf_jax.types import Substrate, SubstrateRequest

PROG = "soopf_jax.substrates"
EDITS = {"one": 1, "two": 2}


@dataclass(frozen=True)
class Look:
    """Draw a contact sheet of a data set and print what its edits change.

    One row per cell of the grid; for each pair the source, the edited image, their absolute difference and the region
    of every support. To download an original data set instead: python -m soopf_jax.substrates fetch --help
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")] = "shapes3d-lite"
    """Where the image pairs come from: shapes3d-lite (built in), shapes3d (needs 3dshapes.h5), mujoco, coco,
    folder:PATH, or your own as package.module:attr."""
    operations: tuple[str, ...] = ()
    """The operations of the grid; default: the substrate's own three."""
    edits: str = "one"
    """Edits per pair: one, or two at once on two supports."""
    pairs_per_cell: int = 0
    """Pairs of each cell; default: the paper's number for the data set."""
    data_seed: int = 0
    """Seeds the construction of the image pairs."""
    data_root: str = ""
    """Folder of the original data set, where one is needed."""
    coco_split: str = DEFAULT_SPLIT
    """COCO split below --data-root."""
    columns: int = 3
    """Pairs to show of each cell: its first."""
    tile: int = 128
    """About how many pixels wide and high a picture is drawn; images grow or shrink by whole factors only."""
    all_pairs: bool = False
    """Measure and hash all pairs, not only those shown."""
    out: str = ""
    """The picture; default: DATASET.png in the current folder."""


@dataclass(frozen=True)
class Fetch:
    """Download an original data set from its official place, check it and unpack it.

    Over https, compared with known sizes and checksums. Interrupted, it goes on when the same command is given again.
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """shapes3d (0.3 GB) or coco (20 GB; with --coco-split val2017, 1 GB)."""
    data_root: str = "data"
    """Folder to put it in: what bench takes as --data-root."""
    coco_split: str = DEFAULT_SPLIT
    """COCO split: train2017 or val2017."""
    keep_zips: bool = False
    """Keep zip files that have been unpacked."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, run, exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments[:1] == ["fetch"]:
        again = "interrupted; run the same command again to go on"
        return cli.run(lambda: run_fetch(cli.parse(Fetch, f"{PROG} fetch", arguments[1:])), interrupted=again)
    return cli.run(lambda: run_look(cli.parse(Look, PROG, arguments)), interrupted="interrupted; nothing was written")


# ------------------------------------------------------------------------------------------------- fetch


def run_fetch(options: Fetch) -> None:
    """Download, then let the substrate's own code say whether it finds what it needs."""
    root = Path(options.data_root).expanduser()
    fetch(parts_of(options.dataset, options.coco_split), root, options.keep_zips)
    if options.dataset == "coco":
        from soopf_jax.substrates import coco

        coco.find_files(options.data_root, options.coco_split)
    split = f" --coco-split {options.coco_split}" if options.coco_split != DEFAULT_SPLIT else ""
    print(f"use it with --dataset {options.dataset} --data-root {options.data_root}{split}")


# -------------------------------------------------------------------------------------------------- look


def run_look(options: Look) -> None:
    """From a name to a picture and a page of numbers."""
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
    """Where the picture goes, checked before any work is done."""
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
        options.coco_split,
        EDITS[options.edits],
    )
    substrate: Substrate = plugins.resolve("dataset", plugins.SUBSTRATES, options.dataset)(request)
    return substrate


def cell_names(substrate: Substrate) -> tuple[str, ...]:
    """The names of the numbers in `substrate.cell`."""
    return substrate.grid.combination_names(substrate.identity.get("edits", 1))


def first_pairs(substrate: Substrate, columns: int) -> dict[str, list[int]]:
    """The first pairs of each cell, as many as there are columns for."""
    rows = {}
    for cell, name in enumerate(cell_names(substrate)):
        rows[name] = np.flatnonzero(substrate.cell == cell)[:columns].tolist()
        if not rows[name]:
            raise UserError(f"the data set has no pair of {name}; every support must occur with every operation")
    return rows


def title(options: Look, substrate: Substrate) -> str:
    """The data set with its version and, where it has them, its seed and the number of edits if it is not one."""
    said = [name for name in ("version", "data_seed", "edits") if name in substrate.identity]
    words = [f"{name.replace('_', ' ')} {substrate.identity[name]}" for name in said]
    return ", ".join([options.dataset, *words, f"soopf_jax {metadata.version('soopf_jax')}"])


def print_numbers(options: Look, substrate: Substrate, pairs: Sequence[int], found: Survey) -> None:
    """Counts of all pairs; changes, shares, ranges and the hash of those that were rendered."""
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
