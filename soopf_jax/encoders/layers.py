"""Which hidden layers a user means, and an encoder at one of them.

A layer is a number counted from the front, as in `types.EncoderRequest`, or None for the encoder's own output.
"""

from collections.abc import Sequence
from typing import Any

from soopf_jax.errors import UserError
from soopf_jax.types import Encoder

ALL, LAST = "all", "last"


def at_layer(encoder: Encoder, layer: int | None) -> Encoder:
    """The encoder that reads this layer, as if it had been opened for it. Nothing is loaded again.

    Args:
        encoder: An encoder with layers, opened for any of them.
        layer: The layer.
    """
    layers = encoder.layers
    if layers is None:
        raise ValueError("the encoder has no layers")
    prepare = encoder.stages[0] if encoder.stages else lambda images: images

    def forward(prepared: Any) -> Any:
        return layers.forward(prepared, [layer])[0]

    return encoder._replace(
        identity=layers.identity(layer), encode=lambda images: forward(prepare(images)), stages=(prepare, forward)
    )


def named_layers(names: Sequence[str], depth: int) -> list[int | None]:
    """The layers that names stand for, each once, in the order of their depth.

    Args:
        names: `all` for the output of every block; `last` for the encoder's output after its final norm, which is what
            a run without --layer reads; a number as for --layer, negative numbers from the end; or a relative depth
            with a decimal point, such as `0.5`.
        depth: The number of blocks.

    Raises:
        UserError: A name is none of these, or there is no such layer.
    """
    found: set[int | None] = set()
    for name in names:
        if name == ALL:
            found |= set(range(1, depth + 1))
        elif name == LAST:
            found.add(None)
        else:
            found.add(_numbered(name, depth))
    return sorted(found, key=lambda layer: depth + 1 if layer is None else layer)


def relative_depth(layer: int | None, depth: int) -> float:
    """The share of the blocks that the tokens of a layer have passed; 1 for the last block and the encoder's output."""
    return 1.0 if layer is None else layer / depth


def _numbered(name: str, depth: int) -> int:
    try:
        value = float(name)
        if "." in name and 0 <= value <= 1:
            return round(value * depth)
        if "." not in name and -depth - 1 <= value <= depth:
            return int(name) % (depth + 1)
    except ValueError:
        pass
    raise UserError(
        f"there is no layer '{name}'; choose 0 (embeddings) to {depth} (last block), a depth such as 0.5, last or all"
    )
