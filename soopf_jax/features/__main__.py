"""The command line for features: `python -m soopf_jax.features list | build | verify | remove | export | import`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.features import pack, remote, store
from soopf_jax.features.table import build
from soopf_jax.runtime import cli, progress
from soopf_jax.runtime.text import is_address
from soopf_jax.types import EncoderRequest, Json, SubstrateRequest

DATASET_HELP = f"Where the image pairs come from: {plugins.listed(plugins.SUBSTRATES)}."
ENCODER_HELP = f"What turns them into tokens: {plugins.listed(plugins.ENCODERS)}."
Folder = Annotated[str | None, tyro.conf.arg(metavar="DIR")]
Stores = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="STORE")]


@dataclass
class List:
    """Show name, size and state of every store in the cache."""

    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


@dataclass
class Build:
    """Render and encode a data set, and print the folder of the store. An interrupted build is continued."""

    dataset: Annotated[str, tyro.conf.arg(help=DATASET_HELP)] = "shapes3d-lite"
    encoder: Annotated[str, tyro.conf.arg(help=ENCODER_HELP)] = "pixels"
    layer: int | None = None
    """Hidden layer to read. 0: the embeddings. Default: the last, after its norm."""
    operations: tuple[str, ...] | None = None
    """The operations of the grid. Default: the data set's own three."""
    pairs_per_cell: int | None = None
    """Pairs of each cell. Default: the paper's number for the data set."""
    data_seed: int = 0
    """Seeds every random choice of the data set."""
    stripe_unit: str = "cycles"
    """What the frequency of stripes counts per pixel: cycles or radians."""
    stripe_size: int | None = None
    """The width of the image whose pixels that frequency counts. Default: the image that is edited."""
    data_root: Folder = None
    """The folder of the original data set, where one is needed."""
    dtype: str = "float16"
    """The number format of stored tokens: float16 or float32."""
    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


@dataclass
class Verify:
    """Check that every byte of a store is as it was written. The exit code is 2 if anything differs."""

    stores: Stores = ()
    """Names in the cache, folders or fsspec addresses. Default: every finished store in the cache."""
    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


@dataclass
class Remove:
    """Delete stores, finished or not, from the cache."""

    stores: Stores
    """Names as `list` shows them."""
    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


@dataclass
class Export:
    """Write a store of the cache to a folder that can travel, with a card and checksums."""

    store: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STORE")]
    """A name as `list` shows it, or its beginning."""
    to: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The folder to write. It must be empty or not exist."""
    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


@dataclass
class Import:
    """Check every byte of a feature pack and put it into the cache. Prints the folder of the store there."""

    pack: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PACK")]
    """The folder of the pack, or its fsspec address, such as https://..."""
    cache_dir: Folder = None
    """Where stores are kept: a folder, or an address such as s3://bucket/prefix. Default: the user's cache folder."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return cli.run(lambda: run(args))


def run(args: Sequence[str] | None = None) -> None:
    """List, build, verify, remove, export or import stores.

    Raises:
        UserError: The command line is wrong, or the command fails.
    """
    match cli.parse(List | Build | Verify | Remove | Export | Import, "soopf_jax.features", args):
        case List() as options:
            listed = remote.list_stores(options.cache_dir)
            for name, state, size, statistics in listed:
                print(f"{name}  {size / 1e6:.1f} MB  {state}{_shown(statistics)}")
            if not listed:
                place = options.cache_dir if is_address(options.cache_dir) else store.features_folder(options.cache_dir)
                print(f"there is no feature store in {place}", file=sys.stderr)
        case Build() as options:
            with progress.shown():
                print(_build(options))
        case Verify() as options:
            _verify(options)
        case Remove() as options:
            if not options.stores:
                raise UserError("no store named; name one that `list` shows")
            for name in options.stores:
                remote.remove(name, options.cache_dir)
        case Export() as options:
            print(pack.export(options.store, options.to, options.cache_dir))
        case Import() as options:
            with progress.shown():
                print(pack.fetch(options.pack, options.cache_dir))


def _shown(statistics: Json | None) -> str:
    """`  RMS of tokens 0.57, of delta 0.21; 98% of the change inside; effective rank 5.3`, as far as it is known."""
    if statistics is None:
        return ""
    inside, rank = statistics["change_inside"], statistics["effective_rank"]
    parts = [f"RMS of tokens {statistics['source_rms']:.4g}, of delta {statistics['delta_rms']:.4g}"]
    parts += [] if inside is None else [f"{inside:.0%} of the change inside"]
    parts += [] if rank is None else [f"effective rank {rank:.3g}"]
    return "  " + "; ".join(parts)


def _build(options: Build) -> Path | str:
    o = options
    request = SubstrateRequest(
        o.dataset,
        o.operations,
        o.pairs_per_cell,
        o.data_seed,
        o.data_root,
        stripe_unit=o.stripe_unit,
        stripe_size=o.stripe_size,
    )
    substrate = plugins.resolve("dataset", plugins.SUBSTRATES, o.dataset)(request)
    encoder = plugins.resolve("encoder", plugins.ENCODERS, o.encoder)(EncoderRequest(o.encoder, o.layer))
    folder = build(substrate, encoder, o.dtype, o.cache_dir, partial(progress.bar, unit="images"))
    return remote.find(folder.name, str(o.cache_dir)) or folder if is_address(o.cache_dir) else folder


def _verify(options: Verify) -> None:
    cache = options.cache_dir
    listed = {one.name: one.state for one in remote.list_stores(cache)}
    finished = [name for name, state in listed.items() if state != remote.UNFINISHED]
    damaged = 0
    for name in options.stores:
        if name not in listed and not is_address(name) and not Path(name).expanduser().exists():
            raise unknown_name("feature store", name, listed)
    for name in options.stores or finished:
        problems = pack.verify(remote.address_of(name, cache) if name in listed else name)
        print("\n".join(problems) or f"{name}: every byte is as it was written")
        damaged += bool(problems)
    if damaged:
        raise UserError(f"damaged stores: {damaged}; remove them and build them again")


if __name__ == "__main__":
    sys.exit(main())
