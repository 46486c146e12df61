"""Examples as HTML: the pair, where it differs, and every assignment's router masks and energy grid."""

import io
from html import escape

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from soopf_jax.grid import Grid
from soopf_jax.report import html_page
from soopf_jax.report.examples import Examples, covered, overlay
from soopf_jax.report.page_style import arm_class
from soopf_jax.runtime.palette import difference, region_colours
from soopf_jax.scoring.router_diagnostic import iou

MAX_SIDE = 160
"""Larger images are shown at a whole fraction of their size, so that a report stays small."""
SHADES = 10
"""Shades of an energy grid, from white to a purple on which black can be read; figures show shares in purple too."""
DARKEST = np.array([158, 154, 200])


def style(n_supports: int) -> str:
    """The rules for the shades of energy grids and the colours of supports."""
    levels = np.linspace(0, 1, SHADES + 1)[:, None]
    shades = (255 + levels * (DARKEST - 255)).astype(int).tolist()
    supports = region_colours(n_supports)[:-1].tolist()
    return "".join(
        [f".energy td.e{i} {{ background: rgb({r}, {g}, {b}); }}\n" for i, (r, g, b) in enumerate(shades)]
        + [f".swatch.s{i} {{ background: rgb({r}, {g}, {b}); }}\n" for i, (r, g, b) in enumerate(supports)]
    )


def cards(examples: Examples, grid: Grid) -> str:
    """All examples, behind the name of their support; the first support's are open."""
    supports, _ = grid.axes(examples.cell)
    groups: list[str] = []
    for support, name in enumerate(grid.supports):
        rows = np.flatnonzero(supports == support).tolist()
        if rows:
            body = "".join(card(examples, row, grid) for row in rows)
            groups.append(html_page.details(f"Edits of {name} ({len(rows)})", body, is_open=not groups))
    return legend(examples, grid) + "".join(groups)


def legend(examples: Examples, grid: Grid) -> str:
    """What the colours and marks mean."""
    swatches = "".join(
        f'<span class="swatch s{index}"></span>{escape(name)}' for index, name in enumerate(grid.supports)
    )
    grey = "; what belongs to no support is grey" if examples.region is not None else ""
    coloured = f"<br>Colours of overlays:{swatches}{grey}." if examples.masks or grey else ""
    return (
        '<p class="faint">The first pair of each held-out cell, read by the selected fit of seed 0 that never saw this '
        "cell. Differences are in square-root scale. Energy grids sum to 1; the true cell is outlined, "
        f"\N{BLACK CIRCLE} marks the cell that the pair is read as.{coloured}</p>"
    )


def card(examples: Examples, row: int, grid: Grid) -> str:
    """One pair and what every assignment makes of it."""
    source, edited = examples.source[row], examples.edited[row]
    pictures = [
        picture(source, "source"),
        picture(edited, "edited"),
        picture(difference(source, edited), "difference"),
    ]
    if examples.region is not None:
        pictures.append(picture(overlay(edited, examples.region[row], examples.window), "true regions"))
    readings = [reading(examples, row, grid, index) for index in range(len(examples.energy))]
    title = f"{grid.cell_names[examples.cell[row]]}, pair {examples.pair[row]}"
    parts = f'<div class="row">{"".join(pictures)}</div><div class="readings">{"".join(readings)}</div>'
    return f'<div class="card"><h3>{escape(title)}</h3>{parts}</div>'


def reading(examples: Examples, row: int, grid: Grid, arm: int) -> str:
    """What one arm's fit makes of a pair: its router's masks, if it has a router, and its energies."""
    assignment = list(examples.energy)[arm]
    true, energy = int(examples.cell[row]), examples.energy[assignment][row]
    found = int(energy.argmax())
    mark = ("right", "\N{CHECK MARK}") if found == true else ("wrong", "\N{BALLOT X}")
    said = f'{escape(assignment)}: <span class="{mark[0]}">{escape(grid.cell_names[found])} {mark[1]}</span>'
    parts = [f"<p>{said}</p>"]
    if assignment in examples.masks:
        masks = examples.masks[assignment][row]
        region = None if examples.region is None else examples.region[row]
        caption = "router masks"
        if region is not None:
            caption += f", {iou_text(iou(masks, region), grid.axes(true)[0], grid)}"
        shown = masks.T * covered(region, masks.shape[1])[:, None]
        parts.append(picture(overlay(examples.edited[row], shown, examples.window), caption))
    parts.append(energy_grid(energy, true, grid))
    return f'<div class="reading {arm_class(arm)}">{"".join(parts)}</div>'


def iou_text(scores: Float[np.ndarray, " supports"], edited: int, grid: Grid) -> str:
    """`IoU 0.82, floor 0.90`: the mean over supports that are present, and that of the edited one."""
    if np.isnan(scores).all():
        return "IoU undefined"
    own = "absent from every patch" if np.isnan(scores[edited]) else f"{scores[edited]:.2f}"
    return f"IoU {np.nanmean(scores):.2f}, {grid.supports[edited]} {own}"


def energy_grid(energy: Float[np.ndarray, " cells"], true: int, grid: Grid) -> str:
    """Supports x operations; the true cell outlined, the largest marked."""
    found = int(energy.argmax())

    def field(cell: int) -> str:
        names = [f"e{round(SHADES * float(energy[cell]))}"]
        names += ["true"] if cell == true else []
        names += ["read"] if cell == found else []
        mark = "\N{BLACK CIRCLE} " if cell == found else ""
        return f'<td class="{" ".join(names)}">{mark}{energy[cell]:.2f}</td>'

    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.operations)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(field(grid.cell(support, operation)) for operation in range(grid.n_operations))
        + "</tr>"
        for support, name in enumerate(grid.supports)
    )
    element = f'<table class="energy"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{element}</div>'


def picture(pixels: UInt8[np.ndarray, "height width 3"], caption: str) -> str:
    """An image with its caption."""
    image = html_page.image(png(pixels), "image/png", caption)
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def png(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The image, no larger than MAX_SIDE."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).reduce(-(-max(pixels.shape) // MAX_SIDE)).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
