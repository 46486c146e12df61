"""`folder:PATH`: your own images. A folder of images and a table of pairs in, the pairs out.

    PATH/source/...   the images before the edit
    PATH/edited/...   the images after the edit
    PATH/region/...   where the supports are: 8-bit grey PNG; the value of a pixel is its support, 255 means none
    PATH/pairs.csv    one line per pair: source,edited,region,support,operation

`source`, `edited` and `region` are file names in the folder of that name; several pairs may share a file. `support` and
`operation` are names of your choice. Supports are numbered 0, 1, ... in the order in which pairs.csv first names them:
these are the values of the region images. Every support must occur with every operation. All images must have the same
size, which may be any. Other columns are ignored. This script writes such a folder for a grid of 2 x 2:

    import csv
    from pathlib import Path
    import numpy as np
    from PIL import Image

    root, rng = Path("my-grid"), np.random.default_rng(0)
    stripes = np.where(np.arange(64) % 4 < 2, 40, -40)[:, None]
    edits = {"invert": lambda pixels: 255 - pixels, "stripes": lambda pixels: pixels + stripes}
    for folder in ("source", "edited", "region"):
        (root / folder).mkdir(parents=True)
    region = np.full((64, 64), 255, np.uint8)  # 255: no support
    region[16:, :32], region[16:, 32:] = 0, 1
    with open(root / "pairs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["source", "edited", "region", "support", "operation"])
        for number in range(160):
            support, operation = number % 2, list(edits)[number // 2 % 2]
            colours = rng.integers(60, 200, (256, 3))  # one for each value of a region
            source = colours[region]
            edited = np.where((region == support)[..., None], edits[operation](source), source)
            for folder, image in {"source": source, "edited": edited, "region": region}.items():
                Image.fromarray(image.astype(np.uint8)).save(root / folder / f"{number}.png")
            table.writerow([f"{number}.png"] * 3 + [["left", "right"][support], operation])

`soopf run --dataset folder:my-grid --quick` runs the benchmark on it. Every arm reads every held-out cell (INJ 1.000).
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.grid import Grid
from soopf_jax.runtime.progress import bar
from soopf_jax.substrates import edits, pairs
from soopf_jax.types import Substrate, SubstrateRequest

TABLE = "pairs.csv"
NONE = 255
"""The value of a pixel of a region image that belongs to no support."""
MOST_SUPPORTS = 127
"""int8 can number no more."""


class Row(NamedTuple):
    """A line of pairs.csv: three file names and two names of the grid."""

    source: str
    edited: str
    region: str
    support: str
    operation: str


def open_substrate(request: SubstrateRequest) -> Substrate:
    """The pairs in the order of pairs.csv. `pairs_per_cell` limits each cell to its first pairs."""
    pairs.refuse(request, "data_root", "data_seed", "stripe_unit", "stripe_size")
    pairs.refuse_two_edits(request)
    root = Path(request.name.partition(":")[2]).expanduser()
    rows = read_table(root / TABLE)
    grid = grid_of(rows, request.operations)
    rows = first_of_each_cell(rows, grid, request.pairs_per_cell)
    size, digest = check_files(root, rows, grid)

    def render_pair(pair: int) -> pairs.Pair:
        row = rows[pair]
        source, edited = read_image(root / "source" / row.source), read_image(root / "edited" / row.edited)
        return source, edited, read_region(root / "region" / row.region, grid, row.support)

    identity = {"name": "folder", "version": "1", "content": digest}
    cell = np.array([cell_of(row, grid) for row in rows])
    return Substrate(grid, cell, size, identity, pairs.render_each(render_pair, len(rows), size))


# --------------------------------------------------------------------------------------------- pairs.csv


def read_table(path: Path) -> list[Row]:
    """The lines of pairs.csv."""
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if missing := [column for column in Row._fields if column not in (table.fieldnames or [])]:
                raise UserError(f"{path} has no column {', '.join(missing)}; its first line must name all columns")
            for line in table:
                row = Row(*((line[column] or "").strip() for column in Row._fields))
                if not all(row):
                    raise UserError(f"{path}, line {table.line_num}: a value is missing; fill in all columns")
                rows.append(row)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; dataset folder:PATH needs PATH/{TABLE}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as CSV in UTF-8 ({error}); save it again") from error
    return rows


def grid_of(rows: Sequence[Row], operations: Sequence[str] | None) -> Grid:
    """The grid of a table: names in order of first appearance, but the operations as given in `operations`, if any."""
    supports = list(dict.fromkeys(row.support for row in rows))
    known = list(dict.fromkeys(row.operation for row in rows))
    for operation in operations or ():
        if operation not in known:
            raise unknown_name("operation", operation, known)
    if len(supports) > MOST_SUPPORTS:
        raise UserError(f"{TABLE} names {len(supports)} supports; use at most {MOST_SUPPORTS}")
    return Grid.of(supports, operations or known)


def cell_of(row: Row, grid: Grid) -> int:
    """The number of a row's cell."""
    return grid.cell(grid.supports.index(row.support), grid.operations.index(row.operation))


def first_of_each_cell(rows: Sequence[Row], grid: Grid, pairs_per_cell: int | None) -> list[Row]:
    """The first `pairs_per_cell` rows of each cell, or all of them, in the order of the table."""
    if pairs_per_cell is not None and pairs_per_cell < 1:
        raise UserError(f"{pairs_per_cell} pairs per cell are too few; ask for at least 1")
    counts = [0] * grid.n_cells
    kept = []
    for row in rows:
        if row.operation in grid.operations and counts[cell := cell_of(row, grid)] != pairs_per_cell:
            counts[cell] += 1
            kept.append(row)
    for name, count in zip(grid.cell_names, counts, strict=True):
        if count < (pairs_per_cell or 1):
            raise UserError(f"cell {name} has {count} pairs in {TABLE}, fewer than {pairs_per_cell or 1}; add some")
    return kept


# ------------------------------------------------------------------------------------------------- files


def check_files(root: Path, rows: Sequence[Row], grid: Grid) -> tuple[tuple[int, int], str]:
    """(height, width) of all images, and the SHA-256 of their contents.

    This check finds everything that can be wrong with a file, except damage in the middle of an image.
    """
    digests: dict[Path, bytes] = {}
    sizes: dict[tuple[int, int], Path] = {}
    content = hashlib.sha256()
    with bar(f"checking {root}", len(rows), "pairs") as advance:
        for row in rows:
            for path in (root / "source" / row.source, root / "edited" / row.edited, root / "region" / row.region):
                if path not in digests:
                    data = read_inside(root, path)
                    digests[path] = hashlib.sha256(data).digest()
                    with readable(path):
                        sizes.setdefault(Image.open(io.BytesIO(data)).size, path)
                content.update(digests[path])
            read_region(root / "region" / row.region, grid, row.support)
            advance(1)
    (size, path), *others = sizes.items()
    if others:
        found = f"{path} has {size} pixels but {others[0][1]} has {others[0][0]}"
        raise UserError(f"{found}; make all images the same size")
    return size[::-1], content.hexdigest()


def read_inside(root: Path, path: Path) -> bytes:
    """The content of a file, which must be inside the folder."""
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            raise UserError(f"{path} is outside {root}; name files within the folder")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path} ({error}); correct {TABLE} or add the file") from error


def read_image(path: Path) -> edits.Image:
    """An image in RGB."""
    with readable(path), Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def read_region(path: Path, grid: Grid, edited: str) -> pairs.Region:
    """The support in each pixel, -1 for none. The edited support must cover at least one pixel."""
    with readable(path), Image.open(path) as image:
        mode, values = image.mode, np.asarray(image)
    if mode != "L":
        raise UserError(f"{path} has mode {mode}; save regions as 8-bit grey images (mode L)")
    wrong = values[(values >= grid.n_supports) & (values != NONE)]
    if len(wrong):
        expected = ", ".join(f"{index} = {name}" for index, name in enumerate(grid.supports))
        raise UserError(f"{path} holds {wrong[0]}; a region may hold only {expected}, {NONE} = none")
    if grid.supports.index(edited) not in values:
        raise UserError(f"{path} has no pixel of {edited}, the edited support; correct it or {TABLE}")
    return values.astype(np.int8)  # NONE becomes -1


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an error of reading an image inside the block into a UserError."""
    try:
        yield
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read as an image ({error}); save it again as PNG") from error
