"""The colours that contact sheets, figures and reports share, and the image of a difference.

The colours are those of Okabe and Ito, which people with colour blindness can tell apart.
"""

import numpy as np
from jaxtyping import UInt8

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, YELLOW = "#56B4E9", "#D55E00", "#F0E442"

ARM_COLOURS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
"""The colours of arms in figures. Yellow is left out, because a thin yellow line is hard to see on white."""
SUPPORT_COLOURS = (ORANGE, PINK, SKY, YELLOW, BLUE, VERMILION, GREEN)
"""The colours of supports in pictures. The first four are not those of the first three arms, because the pages of a run
show both. From the eighth support on, the same colours are used again, but darker."""
NO_SUPPORT_COLOUR = "#DDDDDD"


def region_colours(n_supports: int) -> UInt8[np.ndarray, "supports_and_none 3"]:
    """The colour of each support. The last row, at index -1, is the colour of no support."""
    count = len(SUPPORT_COLOURS)
    colours = [np.array(_rgb(SUPPORT_COLOURS[s % count])) * 0.6 ** (s // count) for s in range(n_supports)]
    return np.array([*colours, _rgb(NO_SUPPORT_COLOUR)]).astype(np.uint8)


def difference(
    source: UInt8[np.ndarray, "height width 3"], edited: UInt8[np.ndarray, "height width 3"]
) -> UInt8[np.ndarray, "height width 3"]:
    """The difference of two images, in square-root scale to make faint changes visible: 1 grey level becomes 16."""
    return np.sqrt(255 * np.abs(edited.astype(float) - source)).round().astype(np.uint8)


def _rgb(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
