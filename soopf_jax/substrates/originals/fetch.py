"""Downloads the original data sets into a folder that the substrates `shapes3d` and `coco` can read.

    python -m soopf_jax.substrates fetch shapes3d|coco|coco:val2017 [--data-root DIR]

Files that exist already are kept, so the same command continues an interrupted fetch.
"""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import atomic
from soopf_jax.substrates.originals.download import AGAIN, Remote, download
from soopf_jax.substrates.originals.unpack import unpack


class Part(NamedTuple):
    """A file of a data set."""

    name: str
    """What it is called in the data root."""
    remote: Remote
    folder: str | None = None
    """The folder that it is unpacked to; None for a file that is not unpacked."""


# Neither site publishes checksums. These are from TensorFlow Datasets (url_checksums/shapes3d.txt and coco.txt); other
# public projects that hashed the files found the same values. The https certificate of images.cocodataset.org is for
# another name. The same bucket has a valid certificate under its path at s3.amazonaws.com.
SHAPES3D = Part(
    "3dshapes.h5",
    Remote(
        "https://storage.googleapis.com/3d-shapes/3dshapes.h5",
        267_573_662,
        "0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785",
    ),
)
COCO_ANNOTATIONS = Part(
    "annotations_trainval2017.zip",
    Remote(
        "https://s3.amazonaws.com/images.cocodataset.org/annotations/annotations_trainval2017.zip",
        252_907_541,
        "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268",
    ),
    folder="annotations",
)
COCO_PHOTOGRAPHS = {
    "train2017": Part(
        "train2017.zip",
        Remote(
            "https://s3.amazonaws.com/images.cocodataset.org/zips/train2017.zip",
            19_336_861_798,
            "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929",
        ),
        folder="train2017",
    ),
    "val2017": Part(
        "val2017.zip",
        Remote(
            "https://s3.amazonaws.com/images.cocodataset.org/zips/val2017.zip",
            815_585_330,
            "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05",
        ),
        folder="val2017",
    ),
}


def parts_of(dataset: str) -> list[Part]:
    """The files of a data set.

    Raises:
        UserError: The data set cannot be fetched.
    """
    parts = {"shapes3d": [SHAPES3D]}
    parts |= {f"coco:{split}": [COCO_ANNOTATIONS, photographs] for split, photographs in COCO_PHOTOGRAPHS.items()}
    name = "coco:train2017" if dataset == "coco" else dataset
    if name not in parts:
        raise unknown_name("dataset to fetch", dataset, ["coco", *parts])
    return parts[name]


def fetch(parts: Sequence[Part], root: Path, keep_zips: bool = False, http_hosts: Collection[str] = ()) -> None:
    """Download and unpack all missing parts, and print what was done.

    Args:
        parts: The files of the data set.
        root: The folder to put them in.
        keep_zips: Whether to keep archives after unpacking.
        http_hosts: As in `download`.

    Raises:
        UserError: A part cannot be downloaded, unpacked or written.
    """
    try:
        busy = f"another process is fetching into {root}; wait until it is done"
        with atomic.locked(root / ".fetch.lock", busy, wait=False):
            missing = []
            for part in parts:
                if part.folder and (root / part.folder).is_dir():
                    print(f"{root / part.folder} is there already; its files were not checked")
                else:
                    missing.append(part)
            check_room(missing, root)
            for part in missing:
                bring(part, root, keep_zips, http_hosts)
    # Errors of the network are UserErrors already, so this one comes from the disk.
    except OSError as error:
        reason = f"{error.strerror or error}; free some space or choose another --data-root"
        raise UserError(f"cannot write to {error.filename or root}: {reason}, then {AGAIN}") from error


def bring(part: Part, root: Path, keep_zips: bool, http_hosts: Collection[str]) -> None:
    """Download a part, and unpack it if it is an archive."""
    file = root / part.name
    download(part.remote, file, http_hosts)
    if part.folder is None:
        print(f"{file} is there, with the right size and SHA-256")
        return
    unpack(file, root / part.folder)
    if not keep_zips:
        file.unlink()
    print(f"{root / part.folder} is there, unpacked from a zip file with the right size and SHA-256")


def check_room(parts: Sequence[Part], root: Path) -> None:
    """Raise a UserError if the disk has no room for the missing parts. An archive counts twice, as it is unpacked."""
    needed = 0
    for part in parts:
        here = [path.stat().st_size for path in (root / part.name, root / f"{part.name}.part") if path.exists()]
        needed += max(part.remote.size - sum(here), 0) + (part.remote.size if part.folder else 0)
    free = shutil.disk_usage(root).free
    if needed > free:
        numbers = f"{needed / 1e9:.1f} GB more, and there are {free / 1e9:.1f} GB left"
        raise UserError(f"{root} needs {numbers}; free some space or choose another --data-root")
