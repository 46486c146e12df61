"""Image pairs in, a feature store and a FeatureTable out; `python -m soopf_jax.features` looks after the stores.

A build goes block by block (`encode.py`), each safely on the disk before it counts (`store_writer.py`), and a store
that is there is never built again: its name is a hash of all that decides its tokens (`store.py`).
"""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from soopf_jax import cli, plugins, store, store_writer
from soopf_jax.encode import ahead, encode_blocks
from soopf_jax.errors import UserError
from soopf_jax.grid import Grid
from soopf_jax.npz import load_npz as load_npz
from soopf_jax.progress import Advance, ProgressBar, bar
from soopf_jax.store_writer import Block, Partial
from soopf_jax.types import (
    Encoder,
    EncoderRequest,
    FeatureTable,
    Substrate,
    SubstrateRequest,
)

MIN_PAIRS_PER_BLOCK = 32
"""ViT-L tokens of 32 pairs in float16 are a file of 13 MB: large enough for a disk, small enough to lose."""


# ------------------------------------------------------------------------------------- images to store


def recipe(substrate: Substrate, encoder: Encoder, dtype: str = "float16") -> dict[str, Any]:
    """All that decides a store: its `key` names the tokens, and changes whenever they could."""
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
    """The folder of the store of these tokens, built if it is not there. Several processes may call it at once."""
    wanted = recipe(substrate, encoder, dtype)
    folder = store.store_folder(wanted, cache_dir)
    if not folder.exists():
        with store_writer.locked(folder):
            if not folder.exists():
                begun = store_writer.begin(folder, wanted)
                shown = progress("encoding", 2 * len(substrate.cell)) if progress else nullcontext(lambda n: None)
                with shown as advance:
                    _fill(begun, substrate, encoder, advance)
                store_writer.finish(begun)
    return folder


def table(
    substrate: Substrate, encoder: Encoder, dtype: str = "float16", cache_dir: str | Path | None = None
) -> FeatureTable:
    """The tokens of all pairs, from the cache or made now with a bar on stderr; read from the disk as they are used."""
    return load(build(substrate, encoder, dtype, cache_dir, partial(bar, unit="images")), lazily=True)


def _pairs_per_block(images_per_batch: int) -> int:
    """As few pairs as fill whole batches and a file that is worth its while."""
    whole = math.lcm(images_per_batch, 2) // 2
    return whole * math.ceil(MIN_PAIRS_PER_BLOCK / whole)


def _fill(begun: Partial, substrate: Substrate, encoder: Encoder, advance: Advance) -> None:
    """Encode and write every block that the store still lacks."""
    size, total = begun.recipe["pairs_per_block"], begun.recipe["pairs"]
    batch, dtype = begun.recipe["images_per_batch"], begun.recipe["inputs"]["dtype"]

    def write(numbered: tuple[int, Block]) -> int:
        store_writer.append(begun, *numbered)
        return 2 * len(numbered[1].cell)

    advance(2 * min(total, begun.blocks * size))
    for n_images in ahead(write, encode_blocks(substrate, encoder, begun.blocks, size, batch, dtype)):
        advance(n_images)


# -------------------------------------------------------------------------------------- store to table


def load(address: str | Path, lazily: bool = False) -> FeatureTable:
    """The features of a finished store, in their stored dtype, from a path or any fsspec address.

    `lazily` leaves tokens and regions on the disk, as arrays that read the slices that they are asked for.
    """
    opened = store.open_store(address)
    read: Callable[[store.Store, str], Any] = store.StoredArray if lazily else store.read
    inputs = opened.manifest["inputs"]
    said = ("format", "key", "digest", "inputs", "versions", "pairs_per_block", "images_per_batch")
    return FeatureTable(
        source=read(opened, "source"),
        delta=read(opened, "delta"),
        region=read(opened, "region"),
        cell=store.read(opened, "cell"),
        grid=Grid.of(inputs["supports"], inputs["operations"]),
        provenance={"kind": "store", **{name: opened.manifest[name] for name in said}},
    )


# ---------------------------------------------------------------------------------------- command line


@dataclass
class List:
    """Show the stores in the cache: name, state, size."""

    cache_dir: str | None = None
    """Where stores are kept; by default the user's cache folder."""


@dataclass
class Build:
    """Render and encode a data set, going on where an interrupted build stopped; prints the store's folder."""

    dataset: str = "shapes3d-lite"
    """Where the image pairs come from."""
    encoder: str = "pixels"
    """What turns them into tokens."""
    layer: int | None = None
    """The encoder's hidden layer; by default the last, after the final norm."""
    operations: tuple[str, ...] | None = None
    """The operations of the grid; by default the data set's own three."""
    pairs_per_cell: int | None = None
    """By default the paper's number for the data set."""
    data_seed: int = 0
    """Seeds every random choice of the data set."""
    data_root: str | None = None
    """The folder of the original data set, where one is needed."""
    coco_split: str = "train2017"
    """The COCO split."""
    dtype: str = "float16"
    """float16 or float32."""
    cache_dir: str | None = None
    """Where stores are kept; by default the user's cache folder."""


@dataclass
class Verify:
    """Compare every byte of stores with what was written; exit code 2 if anything differs."""

    stores: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names in the cache, folders or fsspec addresses; by default every finished store in the cache."""
    cache_dir: str | None = None
    """Where stores are kept; by default the user's cache folder."""


@dataclass
class Remove:
    """Delete stores, finished or not, from the cache."""

    stores: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Names as `list` shows them."""
    cache_dir: str | None = None
    """Where stores are kept; by default the user's cache folder."""


def main(args: Sequence[str] | None = None) -> None:
    """The command line."""
    match cli.parse(List | Build | Verify | Remove, "soopf_jax.features", args):
        case List() as options:
            for name, state, size in store_writer.list_stores(options.cache_dir):
                print(f"{name}  {size / 1e6:.1f} MB  {state}")
        case Build() as options:
            print(_build(options))
        case Verify() as options:
            _verify(options)
        case Remove() as options:
            if not options.stores:
                raise UserError("no store named; name one that `list` shows")
            for name in options.stores:
                store_writer.remove(name, options.cache_dir)


def _build(options: Build) -> Path:
    o = options
    request = SubstrateRequest(o.dataset, o.operations, o.pairs_per_cell, o.data_seed, o.data_root, o.coco_split)
    substrate = plugins.resolve("dataset", plugins.SUBSTRATES, o.dataset)(request)
    encoder = plugins.resolve("encoder", plugins.ENCODERS, o.encoder)(EncoderRequest(o.encoder, o.layer))
    return build(substrate, encoder, o.dtype, o.cache_dir, partial(bar, unit="images"))


def _verify(options: Verify) -> None:
    cache = store.features_folder(options.cache_dir)
    ready = [listed.name for listed in store_writer.list_stores(options.cache_dir) if (cache / listed.name).exists()]
    damaged = 0
    for name in options.stores or ready:
        problems = store.verify(cache / name if name in ready else name)
        print("\n".join(problems) or f"{name}: every byte is as it was written")
        damaged += bool(problems)
    if damaged:
        raise UserError(f"{damaged} damaged; remove and build again")


if __name__ == "__main__":
    sys.exit(cli.run(main))
