"""Image pairs in, a feature store and a FeatureTable out.

Pairs are encoded block by block (`encode.py`), and each block is written safely to the disk (`store_writer.py`). A
store that exists is never built again, because its name holds a hash of everything that determines its tokens
(`store.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from soopf_jax.encoders.layers import at_layer
from soopf_jax.features import remote, statistics, store, store_writer
from soopf_jax.features.encode import Blocks, ahead, encode_layers
from soopf_jax.features.store_writer import Block, Partial
from soopf_jax.grid import Grid
from soopf_jax.runtime.progress import Advance, ProgressBar
from soopf_jax.runtime.text import is_address
from soopf_jax.types import Encoder, FeatureTable, Json, Substrate

MIN_PAIRS_PER_BLOCK = 32
"""32 pairs of ViT-L tokens in float16 are a file of 13 MB. A disk writes it efficiently, and losing it costs little."""


# ------------------------------------------------------------------------------------- images to store


def recipe(substrate: Substrate, encoder: Encoder, dtype: str = "float16") -> dict[str, Any]:
    """Everything that determines a store. Its `key` changes whenever the tokens could change."""
    return store.make_recipe(
        encoder.identity,
        substrate.identity,
        substrate.grid,
        substrate.cell,
        dtype,
        pairs_per_block=_pairs_per_block(encoder.batch_size),
        images_per_batch=encoder.batch_size,
    )


def build(
    substrate: Substrate,
    encoder: Encoder,
    dtype: str = "float16",
    cache_dir: str | Path | None = None,
    progress: ProgressBar | None = None,
) -> Path:
    """Build the store of these tokens if it does not exist. Several processes may call this at once.

    Args:
        substrate: The source of the image pairs.
        encoder: The encoder.
        dtype: The number format of the tokens, float16 or float32.
        cache_dir: The folder of all stores; by default in the user's cache folder. If it is an address, stores are
            fetched from there or built here and uploaded (`remote.py`).
        progress: Shows the progress of a build.

    Returns:
        The folder of the store. If `cache_dir` is an address, that of its copy in the user's cache folder.

    Raises:
        UserError: The store cannot be written, or the encoder's output is wrong.
    """
    return _build(substrate, encoder, None, [recipe(substrate, encoder, dtype)], cache_dir, progress)[0]


def build_layers(
    substrate: Substrate,
    encoder: Encoder,
    layers: Sequence[int | None],
    dtype: str = "float16",
    cache_dir: str | Path | None = None,
    progress: ProgressBar | None = None,
) -> list[Path]:
    """Build the stores of several layers of an encoder, as far as they do not exist, from one pass over the images.

    Args:
        substrate: As in `build`.
        encoder: An encoder with layers, opened for any of them.
        layers: The layers.
        dtype: As in `build`.
        cache_dir: As in `build`.
        progress: As in `build`.

    Returns:
        The folder of each layer's store. It is the one that `build` makes for the encoder at this layer.

    Raises:
        UserError: As in `build`.
    """
    recipes = [recipe(substrate, at_layer(encoder, layer), dtype) for layer in layers]
    return _build(substrate, encoder, layers, recipes, cache_dir, progress)


def table(
    substrate: Substrate,
    encoder: Encoder,
    dtype: str = "float16",
    cache_dir: str | Path | None = None,
    progress: ProgressBar | None = None,
) -> FeatureTable:
    """The tokens of all pairs, from the cache or encoded now. They stay on the disk and are read when they are used.

    The arguments are those of `build`.
    """
    return load(build(substrate, encoder, dtype, cache_dir, progress), lazily=True)


def _pairs_per_block(images_per_batch: int) -> int:
    """The smallest number of pairs that fills whole batches and is at least MIN_PAIRS_PER_BLOCK."""
    whole = math.lcm(images_per_batch, 2) // 2
    return whole * math.ceil(MIN_PAIRS_PER_BLOCK / whole)


def _build(
    substrate: Substrate,
    encoder: Encoder,
    layers: Sequence[int | None] | None,
    recipes: Sequence[Json],
    cache_dir: str | Path | None,
    progress: ProgressBar | None,
) -> list[Path]:
    """Build the stores that do not exist; `layers` has the layer of each recipe, None means the encoder's own."""
    folders = [store.store_folder(wanted, cache_dir) for wanted in recipes]
    remote_cache = str(cache_dir) if is_address(cache_dir) else None
    with ExitStack() as stack:
        for folder in sorted({folder for folder in folders if not folder.exists()}):  # one order: no deadlock
            stack.enter_context(store_writer.locked(folder))
        if remote_cache is not None:
            for folder in dict.fromkeys(folders):
                if not folder.exists() and not remote.fetch(folder, remote_cache):
                    remote.check_writable(remote_cache)
        begun = {
            place: store_writer.begin(folder, wanted)
            for place, (folder, wanted) in enumerate(zip(folders, recipes, strict=True))
            if not folder.exists()
        }
        for places in _alike(begun):
            shown = (
                progress("rendering and encoding", 2 * len(substrate.cell)) if progress else nullcontext(lambda n: None)
            )
            with shown as advance:
                some = None if layers is None else [layers[place] for place in places]
                _fill([begun[place] for place in places], substrate, encoder, some, advance)
    if remote_cache is not None:
        for folder in dict.fromkeys(folders):
            remote.upload(folder, remote_cache)
    return folders


def _alike(begun: Mapping[int, Partial]) -> list[list[int]]:
    """Stores that one pass can fill. A store that was begun with other batches needs a pass of its own."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, partial_store in begun.items():
        cut = partial_store.recipe["pairs_per_block"], partial_store.recipe["images_per_batch"]
        groups.setdefault(cut, []).append(place)
    return list(groups.values())


def _fill(
    begun: Sequence[Partial],
    substrate: Substrate,
    encoder: Encoder,
    layers: Sequence[int | None] | None,
    advance: Advance,
) -> None:
    """Encode and write every block that is still missing, and finish the stores."""
    first = begun[0].recipe
    cut = Blocks(first["pairs_per_block"], first["images_per_batch"], first["inputs"]["dtype"])
    first_blocks = [partial_store.blocks for partial_store in begun]
    counted = min(first_blocks)

    def write(encoded: tuple[int, int, Block]) -> tuple[int, int]:
        number, place, block = encoded
        store_writer.append(begun[place], number, block)
        return number, 2 * len(block.cell)

    advance(2 * min(first["pairs"], counted * cut.size))
    for number, images in ahead(write, encode_layers(substrate, encoder, layers, first_blocks, cut)):
        if number == counted:  # with the first of its layers
            advance(images)
            counted += 1
    for partial_store in begun:
        written = _as_table(store.Store(str(partial_store.work), partial_store.recipe), lazily=True)
        found = statistics.measure(written, substrate.identity.get("edits", 1))
        store_writer.finish(partial_store, found._asdict())


# -------------------------------------------------------------------------------------- store to table


def load(address: str | Path, lazily: bool = False) -> FeatureTable:
    """The features of a finished store, in their stored dtype.

    Args:
        address: A path or any fsspec address.
        lazily: Whether tokens and regions stay on the disk until a slice of them is asked for.

    Raises:
        UserError: There is no store at the address, or it is damaged.
    """
    return _as_table(store.open_store(address), lazily)


def _as_table(opened: store.Store, lazily: bool) -> FeatureTable:
    """The table of a store whose arrays are complete. The manifest is without files and digest while it is built."""
    read: Callable[[store.Store, str], Any] = store.StoredArray if lazily else store.read
    inputs = opened.manifest["inputs"]
    said = ("format", "key", "digest", "inputs", "versions", "pairs_per_block", "images_per_batch", "statistics")
    return FeatureTable(
        source=read(opened, "source"),
        delta=read(opened, "delta"),
        region=read(opened, "region"),
        cell=store.read(opened, "cell"),
        grid=Grid.of(inputs["supports"], inputs["operations"]),
        provenance={"kind": "store", **{name: opened.manifest[name] for name in said if name in opened.manifest}},
    )
