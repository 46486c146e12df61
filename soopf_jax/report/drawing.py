"""What figures share: how an arm looks, how a name is written, how a map of shares is drawn."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from soopf_jax.runtime.palette import ARM_COLOURS
from soopf_jax.runtime.text import printable

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("solid", "dashed", "dashdot", "dotted", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
"""Arms differ in marker and dash as well as in colour."""
WHITE_INK = 0.67
"""From this share on, white can be read better than black on the purple of a map."""
MAX_NUMBERED = 16
"""The most rows or columns of a map whose fields show numbers."""


def colour(arm: int) -> str:
    """The colour of an arm."""
    return ARM_COLOURS[arm % len(ARM_COLOURS)]


def marker(arm: int) -> str:
    """The marker of an arm."""
    return MARKERS[arm % len(MARKERS)]


def label(name: str, width: int = 12) -> str:
    """A name from a file, broken into lines of at most `width` characters; what cannot be printed is replaced."""
    return textwrap.fill(printable(name), width)


def values(numbers: Sequence[float | None]) -> Float[np.ndarray, " numbers"]:
    """Numbers of a result file, NaN where undefined."""
    return np.array(numbers, float)


def unit_axis(axes: Axes) -> None:
    """A vertical axis for shares."""
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks(np.linspace(0, 1, 6))


def seed_dots(axes: Axes, index: int, seeds: Float[np.ndarray, " seeds"]) -> None:
    """The score of every seed, with mean and SD beside them."""
    jitter = np.linspace(-0.18, 0.18, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    look: dict[str, Any] = {"color": colour(index), "linestyle": "none"}
    axes.plot(index + jitter, seeds, marker(index), alpha=0.45, markersize=4, **look)
    axes.errorbar(index + 0.32, seeds.mean(), seeds.std(), marker=marker(index), capsize=3, **look)


def share_map(axes: Axes, shares: Float[np.ndarray, "rows columns"]) -> None:
    """Shares on a grid, from white to purple, which is the colour of no arm and no support; NaN is grey."""
    rows, columns = shares.shape
    axes.set_facecolor("0.9")
    axes.pcolormesh(np.ma.masked_invalid(shares), vmin=0, vmax=1, cmap="Purples", edgecolors="white", linewidth=0.5)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def heatmap(
    axes: Axes,
    shares: Float[np.ndarray, "rows columns"],
    digits: int = 2,
    below: Mapping[tuple[int, int], str] | None = None,
) -> None:
    """A map with a number in each field, unless it has too many fields.

    Args:
        axes: Where to draw.
        shares: NaN is shown as a dash.
        digits: With 0, the numbers are in per cent, and 0 is left out.
        below: A few words below the number of a field, by row and column.
    """
    share_map(axes, shares)
    if max(shares.shape) > MAX_NUMBERED:
        return
    for (row, column), share in np.ndenumerate(shares):
        number = "-" if np.isnan(share) else f"{share:.{digits}f}" if digits else f"{100 * share:.0f}"
        text = "\n".join(filter(None, [number, (below or {}).get((row, column))]))
        if number != "0":
            ink = "w" if share > WHITE_INK else "k"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink, fontsize=8)


def centres(count: int) -> Float[np.ndarray, " fields"]:
    """Where the fields of a map have their ticks."""
    return np.arange(count) + 0.5
