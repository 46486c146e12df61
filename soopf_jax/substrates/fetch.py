"""The original data sets: where they are, and how they come to be a folder that `shapes3d` and `coco` can read.

    python -m soopf_jax.substrates fetch shapes3d|coco [--data-root DIR]

What is there already stays, so a fetch that was interrupted goes on when the same command is given again.
"""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from soopf_jax.errors import UserError, unknown_name
from soopf_jax.substrates.download import AGAIN, Remote, download
from soopf_jax.substrates.unpack import unpack

DEFAULT_SPLIT = "train2017"


class Part(NamedTuple):
    """A file of a data set."""

    name: str
    """What it is called in the data root."""
    remote: Remote
    folder: str | None = None
    """The folder that it unpacks to; None: it is used as it is."""


# Neither place publishes checksums. These are the ones that TensorFlow Datasets pins (url_checksums/shapes3d.txt and
# coco.txt), and other public projects that hashed the files found the same. images.cocodataset.org is a bucket whose
# https certificate has another name; the same bucket by its path at s3.amazonaws.com has a valid one.
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


def parts_of(dataset: str, coco_split: str) -> list[Part]:
    """The files of a data set."""
    match dataset:
        case "shapes3d":
            if coco_split != DEFAULT_SPLIT:
                raise UserError("dataset shapes3d has no use for --coco-split; leave --coco-split out")
            return [SHAPES3D]
        case "coco":
            if coco_split not in COCO_PHOTOGRAPHS:
                raise unknown_name("COCO split with annotations", coco_split, COCO_PHOTOGRAPHS)
            return [COCO_ANNOTATIONS, COCO_PHOTOGRAPHS[coco_split]]
    raise unknown_name("dataset to fetch", dataset, ["shapes3d", "coco"])


def fetch(parts: Sequence[Part], root: Path, keep_zips: bool = False, http_hosts: Collection[str] = ()) -> None:
    """Bring all parts that are not there; says on stdout what it has done. `http_hosts` as in `download`."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".fetch.lock", timeout=0):
            missing = []
            for part in parts:
                if part.folder and (root / part.folder).is_dir():
                    print(f"{root / part.folder} is there already; its files were not checked")
                else:
                    missing.append(part)
            check_room(missing, root)
            for part in missing:
                bring(part, root, keep_zips, http_hosts)
    except Timeout as error:
        raise UserError(f"another process is fetching into {root}; wait until it is done") from error
    # What goes wrong on the network is a UserError before it gets here.
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
    """A UserError where the disk cannot hold what is still to come: archives need their room twice."""
    needed = 0
    for part in parts:
        here = [path.stat().st_size for path in (root / part.name, root / f"{part.name}.part") if path.exists()]
        needed += max(part.remote.size - sum(here), 0) + (part.remote.size if part.folder else 0)
    free = shutil.disk_usage(root).free
    if needed > free:
        numbers = f"{needed / 1e9:.1f} GB more, and there are {free / 1e9:.1f} GB left"
        raise UserError(f"{root} needs {numbers}; free some space or choose another --data-root")
