"""Feature packs: a store in a folder that travels, with a card for people and a list of checksums.

`export` writes the files of a store as they are, its manifest, a card (`CARD`) and checksums (`SUMS`). `fetch` checks
every byte of a pack, or of a bare store, at a path or address, and puts it into the cache here under its key.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.features import foreign, remote, store, store_writer
from soopf_jax.features.address import Folder, open_folder
from soopf_jax.features.store import CARD, MANIFEST, SUMS
from soopf_jax.runtime import atomic
from soopf_jax.runtime.hashing import sha256
from soopf_jax.runtime.progress import phase
from soopf_jax.runtime.text import is_address
from soopf_jax.types import Json


def export(name: str, to: str | Path, cache_dir: str | Path | None) -> Path:
    """Write the pack of a store in the cache. If the same pack is there already, nothing is done.

    Args:
        name: A name that `features list` shows, or the beginning of one of them only.
        to: A folder that is empty or does not exist.
        cache_dir: The cache, a folder or an address; by default in the user's cache folder.

    Returns:
        The folder of the pack.

    Raises:
        UserError: There is no such store, it is damaged or unfinished, or something else is in the folder.
    """
    if is_address(to):
        raise UserError(f"a pack is written to a folder on this machine, not to {to}; copy it there afterwards")
    name = resolve(name, [listed.name for listed in remote.list_stores(cache_dir)])
    source, target = open_folder(remote.address_of(name, cache_dir)), Path(to).expanduser()
    manifest = store.read_manifest(source)
    files = {MANIFEST: store.manifest_bytes(manifest), CARD: card(name, manifest, source).encode()}
    files[SUMS] = sums(manifest, files[CARD])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        same = target.is_dir() and all(open_folder(target).holds(name, data) for name, data in files.items())
        if not same or verify(target):
            raise UserError(f"{target} holds something else; choose another --to")
        return target
    with atomic.new_folder(target) as folder:
        for file in manifest["files"]:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(store.read_checked(source, manifest, file))
        for file, data in files.items():
            (folder / file).write_bytes(data)
    return target


def resolve(name: str, valid: Sequence[str]) -> str:
    """The name that begins like this.

    Raises:
        UserError: There is none, or several.
    """
    found = [name] if name in valid else [one for one in valid if name and one.startswith(name)]
    if not valid:
        raise UserError("the cache has no feature store; build one with soopf features build")
    if not found:
        raise unknown_name("feature store", name, valid)
    if len(found) > 1:
        raise UserError(f"several feature stores begin with '{name}': {', '.join(found)}; give more of the name")
    return found[0]


def fetch(place: str | Path, cache_dir: str | Path | None) -> Path:
    """Put a pack or a store into the cache here, unless it is there.

    Args:
        place: A folder or an fsspec address, such as `https://...`.
        cache_dir: As for `export`. If it is an address, the store is uploaded to it too.

    Returns:
        The folder of the store in the cache here.

    Raises:
        UserError: There is no pack, a byte of it has changed, or the cache has another store of the same key.
    """
    source = open_folder(place)
    manifest = store.read_manifest(source)
    try:
        folder = store.store_folder(manifest, cache_dir)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise store.damaged(source.address, f"{MANIFEST} cannot be understood ({error!r})") from error
    if problem := _of_card(source, manifest):
        raise store.damaged(source.address, problem)
    with store_writer.locked(folder):
        if not folder.exists():
            with phase("importing features"):
                store_writer.adopt(folder, source, foreign.check)
        elif store.open_store(folder).manifest["digest"] != manifest["digest"]:
            other = f"the cache has another store of the key {manifest['key'][:16]}"
            raise UserError(f"{other}; to have this one instead, first soopf features remove {folder.name}")
    if is_address(cache_dir):
        remote.upload(folder, str(cache_dir))
    return folder


def verify(place: str | Path) -> list[str]:
    """Compare a store or a pack with what was written: one line per difference."""
    problems = store.verify(place)
    source = open_folder(place)
    card_problem = None if problems else _of_card(source, store.read_manifest(source))
    return problems + ([str(store.damaged(source.address, card_problem))] if card_problem else [])


# --------------------------------------------------------------------------------------- what a pack has more


def sums(manifest: Json, card_bytes: bytes) -> bytes:
    """The SHA-256 of every file, as `sha256sum --check` reads it."""
    files = {name: checksum for name, (_, checksum) in manifest["files"].items()}
    files |= {MANIFEST: sha256(store.manifest_bytes(manifest)), CARD: sha256(card_bytes)}
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def card(name: str, manifest: Json, source: Folder) -> str:
    """What people should know of a pack, as Markdown."""
    inputs, statistics = manifest["inputs"], manifest.get("statistics") or {}
    encoder, substrate = inputs["encoder"], inputs["substrate"]
    _, patches, channels = json.loads(store.read_checked(source, manifest, "source/zarr.json"))["shape"]
    licence = encoder.get("licence") or "not recorded; that of the encoder's weights and of the images applies"
    rows = {
        "encoder": " ".join(str(encoder[word]) for word in ("name", "hub_id") if encoder.get(word)),
        "layer": "the last" if encoder.get("layer") is None else encoder["layer"],
        "licence": licence,
        "data set": substrate.get("name", "unknown"),
        "grid": f"{', '.join(inputs['supports'])} x {', '.join(inputs['operations'])}",
        "tokens": f"{manifest['pairs']} pairs x {patches} patches x {channels} channels, {inputs['dtype']}",
        **{label.replace("_", " "): value for label, value in statistics.items()},
        "key": manifest["key"],
        "digest": manifest["digest"],
    }
    table = "\n".join(f"| {label} | {str(value).replace('|', '&#124;')} |" for label, value in rows.items())
    made = json.dumps({"inputs": inputs, "versions": manifest["versions"]}, indent=1, sort_keys=True)
    return f"""# Feature pack {name}

Tokens of a frozen vision encoder for pairs of images that differ by one edit, made by soopf_jax.

| | |
| --- | --- |
{table}

## How to use it

    soopf run --features FOLDER          # train on it where it lies: no weights and no images are needed
    soopf features import FOLDER         # or check every byte and put it into the cache, where runs find it by its key

`sha256sum --check {SUMS}` checks it without soopf_jax. `source`, `delta`, `region` and `cell` are zarr arrays.

## How it was made

```json
{made}
```
"""


def _of_card(source: Folder, manifest: Json) -> str | None:
    """What is wrong with the card and the checksums, or None. A bare store has neither."""
    if not source.has(CARD) and not source.has(SUMS):
        return None
    try:
        same = source.read(SUMS) == sums(manifest, source.read(CARD))
    except FileNotFoundError:
        return f"{CARD} or {SUMS} is missing"
    return None if same else f"{CARD} or {SUMS} has changed"
