"""A cache of feature stores at an address, such as `s3://bucket/prefix`, that many machines share.

Stores are built in the user's cache folder, copied to the address whole, and read from the user's cache folder again.
A store at the address is called like the one here, with the first eight hex digits of its manifest's digest behind its
name: stores that differ in a single bit have different names, so two machines that upload at once cannot mix their
files, and need no lock. The manifest is written last and removed first. A store without one is unfinished and never
read.
"""

import re
from pathlib import Path

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.features import foreign, store, store_writer
from soopf_jax.features.address import Folder, Unreachable, for_all, open_folder
from soopf_jax.features.store import MANIFEST
from soopf_jax.features.store_writer import Listed
from soopf_jax.runtime.progress import phase
from soopf_jax.runtime.text import is_address
from soopf_jax.types import Json

UNFINISHED = store_writer.UNFINISHED
MARK = "soopf_jax.txt"
"""A file in every cache at an address. It is written before a build, which shows that the build can be kept."""
MARK_TEXT = b"soopf_jax keeps feature stores in the folders beside this file.\n"


def place(cache: str, name: str = "") -> str:
    """The address of the folder of all stores, or of one of them."""
    return f"{cache.rstrip('/')}/features/{name}".rstrip("/")


def check_writable(cache: str) -> None:
    """Write a small file, to fail before the work rather than after it.

    Raises:
        UserError: The address cannot be written.
    """
    open_folder(place(cache)).write(MARK, MARK_TEXT)


def there(recipe: Json, cache_dir: str | Path | None) -> bool:
    """Whether a finished store of this recipe is in a cache, so that nothing need be encoded."""
    folder = store.store_folder(recipe, cache_dir)
    return folder.exists() or (is_address(cache_dir) and find(folder.name, str(cache_dir)) is not None)


def find(name: str, cache: str) -> str | None:
    """The address of the finished store that is called `name` here; None if there is none.

    Stores of one key can differ in their last bits, because they were built on different machines. The first by name
    is then taken, so that every machine takes the same.
    """
    ours = re.compile(re.escape(name) + "-[0-9a-f]{8}")
    found = [place(cache, one) for one in open_folder(place(cache)).folders() if ours.fullmatch(one)]
    return next((address for address in found if open_folder(address).has(MANIFEST)), None)


def fetch(folder: Path, cache: str) -> bool:
    """Copy a store from a cache to its folder here, if the cache has it. The caller holds the lock of the folder.

    Returns:
        Whether the cache has it.

    Raises:
        Damaged: It is not as it was written.
        UserError: It cannot be read, or the folder cannot be written.
    """
    address = find(folder.name, cache)
    if address is not None:
        with phase("fetching features"):
            store_writer.adopt(folder, open_folder(address), foreign.check)
    return address is not None


def upload(folder: Path, cache: str) -> str:
    """Copy a finished store to a cache, unless the cache has a store of its key.

    What is there already from an upload that was interrupted is not sent again. Every file is compared with what was
    sent, by the MD5 that the server gives or by reading it again, before the manifest makes them a store.

    Args:
        folder: The store.
        cache: The address of the cache.

    Returns:
        The address of the store.

    Raises:
        Damaged: The store here is damaged.
        UserError: The address cannot be written, or the server has something else than what was sent.
    """
    found = find(folder.name, cache)
    if found is not None:
        return found
    manifest, source = store.open_store(folder).manifest, open_folder(folder)
    target = open_folder(place(cache, f"{folder.name}-{manifest['digest'][:8]}"))
    with phase("uploading features"):
        for_all(lambda name: _send(target, name, store.read_checked(source, manifest, name)), manifest["files"])
        _send(target, MANIFEST, store.manifest_bytes(manifest))
        store.open_store(target.address)  # another process may have removed some of it meanwhile
    return target.address


def _send(target: Folder, name: str, data: bytes) -> None:
    """Write a file, if it is not there, and check that it is."""
    if not target.holds(name, data):
        target.write(name, data)
        if not target.holds(name, data):
            raise UserError(f"{target.address}/{name} is not what was written; run the same command again")


# ----------------------------------------------------------------------------------- listing and removing


def list_stores(cache_dir: str | Path | None) -> list[Listed]:
    """Every store in a cache, here or at an address, sorted by name."""
    if not is_address(cache_dir):
        return store_writer.list_stores(cache_dir)
    cache = str(cache_dir)
    return [_listed(name, open_folder(place(cache, name))) for name in open_folder(place(cache)).folders()]


def remove(name: str, cache_dir: str | Path | None) -> None:
    """Delete a store from a cache, finished or not. At an address its manifest goes first. Copies elsewhere stay.

    Raises:
        UserError: There is no such store, or it cannot be removed.
    """
    if not is_address(cache_dir):
        store_writer.remove(name, cache_dir)
        return
    cache = str(cache_dir)
    valid = open_folder(place(cache)).folders()
    if name not in valid:
        none = UserError(f"there is no feature store to remove in {cache}")
        raise unknown_name("feature store", name, valid) if valid else none
    open_folder(place(cache, name)).remove(first=MANIFEST)


def address_of(name: str, cache_dir: str | Path | None) -> str:
    """The path or address of a store in a cache, by its name. It need not exist."""
    return place(str(cache_dir), name) if is_address(cache_dir) else str(store.features_folder(cache_dir) / name)


def _listed(name: str, folder: Folder) -> Listed:
    state, statistics = UNFINISHED, None
    try:
        if folder.has(MANIFEST):
            state, statistics = "ready", store.open_store(folder.address).manifest.get("statistics")
    except Unreachable:
        raise
    except UserError as error:
        state = str(error)
    return Listed(name, state, sum(folder.sizes().values()), statistics)
