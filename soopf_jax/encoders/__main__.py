"""The command line for encoders: `python -m soopf_jax.encoders check NAME --data-root coco`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from PIL import Image

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import cli
from soopf_jax.types import Encoder, EncoderRequest


@dataclass
class Options:
    """Compare an encoder's tokens with the values that were published for its checkpoint."""

    action: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="check")]
    """The only action so far."""
    encoder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENCODER")]
    """The encoder, as for the benchmark."""
    data_root: Annotated[str, tyro.conf.arg(metavar="DIR")] = "coco"
    """The folder of COCO, which holds val2017/000000039769.jpg."""
    like: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The encoder or hub id whose published values are expected, for weights in a folder of your own."""


def main(args: Sequence[str] | None = None) -> int:
    """Parse, check, exit code."""
    return cli.run(lambda: run(args))


def run(args: Sequence[str] | None = None) -> None:
    """Carry out the action that the command line names.

    Raises:
        UserError: The command line cannot be read, or the encoder does not give the published values.
    """
    options = cli.parse(Options, "soopf_jax.encoders", args)
    if options.action != "check":
        raise unknown_name("action", options.action, ["check"])
    print(check(options.encoder, options.data_root, options.like))


def check(name: str, data_root: str, like: str | None = None) -> str:
    """The sentence that says that an encoder gives the published values.

    Raises:
        UserError: It does not, with the reason; or there are no published values; or the image is missing.
    """
    from soopf_jax.encoders.golden import GOLDEN, IMAGE, difference  # torch

    key = _checkpoint(like or name)
    if key not in GOLDEN:
        raise UserError(
            f"no token values are published for {like or name}; there are values for {', '.join(sorted(GOLDEN))}; "
            "for copies of these in a folder, say which with --like"
        )
    path = Path(data_root).expanduser() / IMAGE
    if not path.is_file():
        raise UserError(f"there is no {path}; download that image of COCO val2017, or name its folder with --data-root")
    image = np.asarray(Image.open(path).convert("RGB"))
    found = difference(_open(name), lambda: _open(name, -1), GOLDEN[key], image)
    if found:
        raise UserError(f"{name} does not give the published tokens of {key}: {found}; values: {GOLDEN[key].source}")
    return f"{name}: these are the paper's weights, read as the paper's authors would read them ({GOLDEN[key].source})"


def _open(name: str, layer: int | None = None) -> Encoder:
    return plugins.resolve("encoder", plugins.ENCODERS, name)(EncoderRequest(name, layer))


def _checkpoint(name: str) -> str:
    """The hub id of the checkpoint that an encoder's name stands for, or the name itself."""
    from soopf_jax.encoders.golden import TIMM_COPIES
    from soopf_jax.encoders.hf_architectures import HUB_IDS, UNGATED

    copies = {copy: hub_id for hub_id, copy in UNGATED.items()}
    bare = name.removeprefix("hf:").removeprefix("timm:").partition("@")[0]
    return HUB_IDS.get(bare) or copies.get(bare) or TIMM_COPIES.get(bare) or bare


if __name__ == "__main__":
    sys.exit(main())
