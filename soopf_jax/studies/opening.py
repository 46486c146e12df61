"""Open the data sets and encoders of a study, each once, and say what is missing and how to get it.

Nothing is downloaded: a plan must neither wait for a network nor fill a disk.
"""

import time
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from soopf_jax import plugins
from soopf_jax.encoders.downloads import to_download
from soopf_jax.encoders.hf_architectures import HUB_IDS
from soopf_jax.encoders.layers import at_layer
from soopf_jax.errors import MissingPackage, UserError
from soopf_jax.studies.rows import Obstacle
from soopf_jax.types import Encoder, EncoderRequest, Substrate, SubstrateRequest

_HOW = "python -m soopf_jax.substrates fetch {} --data-root DIR, then --data-root DIR here"
_GATED = f"accept the licence of {HUB_IDS['dinov3']} on the hub, hf auth login, hf download {HUB_IDS['dinov3']}"
NEEDS: Mapping[str, tuple[str, str]] = {
    "shapes3d": ("3dshapes.h5", _HOW.format("shapes3d")),
    "coco": ("COCO train2017", _HOW.format("coco")),
    "mujoco": ("EGL or OSMesa", "Debian: apt install libegl1 libgl1"),
    "dinov3": ("DINOv3 weights", _GATED),
    "siglip2": ("SigLIP2 weights", f"hf download {HUB_IDS['siglip2']}"),
}
"""What a data set or an encoder needs, and how to get it."""


class Openers:
    """Opens every data set once, and every encoder once as long as rows that share it follow one another."""

    def __init__(self) -> None:
        self.dataset = lru_cache(maxsize=None)(open_dataset)
        self._named = lru_cache(maxsize=1)(_open_encoder)  # one at a time: an encoder can fill the memory
        self._depths: dict[str, int | None] = {}
        self.sizes = lru_cache(maxsize=None)(self._sizes)

    def encoder(self, name: str, layer: int | None = None) -> Encoder | Obstacle:
        """The encoder at a layer, or what it lacks here."""
        encoder = self._named(EncoderRequest(name))
        if isinstance(encoder, Obstacle) or layer is None:
            return encoder
        if encoder.layers is None:
            return self._named(EncoderRequest(name, layer))
        return at_layer(encoder, layer)

    def depth(self, name: str) -> int | None:
        """The number of blocks of an encoder; None if it has no layers or cannot be opened."""
        if name not in self._depths:
            encoder = missing_weights(name) or self.encoder(name)
            layers = None if isinstance(encoder, Obstacle) else encoder.layers
            self._depths[name] = layers.depth if layers else None
        return self._depths[name]

    def _sizes(self, name: str, layer: int | None, image_size: tuple[int, int]) -> tuple[int, int, float]:
        """Patches, channels and seconds of one blank image."""
        encoder = self.encoder(name, layer)
        if isinstance(encoder, Obstacle):
            raise ValueError(encoder.reason)
        blank = np.zeros((1, *image_size, 3), np.uint8)
        _, patches, channels = encoder.encode(blank).shape  # the first call may compile
        start = time.perf_counter()
        encoder.encode(blank)
        return patches, channels, time.perf_counter() - start


def _open_encoder(request: EncoderRequest) -> Encoder | Obstacle:
    try:
        return plugins.resolve("encoder", plugins.ENCODERS, request.name)(request)
    except UserError as error:
        return _lacks(request.name, error)


def open_dataset(request: SubstrateRequest) -> Substrate | Obstacle:
    """The data set, or what it lacks here."""
    try:
        return plugins.resolve("dataset", plugins.SUBSTRATES, request.name)(request)
    except UserError as error:
        return _lacks(request.name, error)


def missing_weights(name: str) -> Obstacle | None:
    """An obstacle if an encoder's weights would have to be downloaded; None if they are on this machine."""
    try:
        hub_id = to_download(name)
    except UserError as error:
        return _lacks(name, error)
    if hub_id is None:
        return None
    return _lacks(name, UserError(f"{hub_id} is not in the cache of downloads; hf download {hub_id}"))


def _lacks(name: str, error: UserError) -> Obstacle:
    """What a part needs and how to get it: from NEEDS, or else from its error message, which is `reason; remedy`."""
    reason, _, remedy = str(error).partition(";")
    said = f"{name} ({reason})", remedy.strip()
    thing, how = said if isinstance(error, MissingPackage) else NEEDS.get(name, said)
    return Obstacle(f"needs {thing}", (f"{thing}: {how}",))
