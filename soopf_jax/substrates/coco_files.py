"""COCO's files: where a split lies below a data root, and which objects of its photographs are supports.

`soopf data fetch coco` needs this module too, and works without pycocotools.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.runtime.hashing import file_sha256

SUPPORTS = ("person", "vehicle", "background")
PERSON, VEHICLE, BACKGROUND = range(3)
PERSON_CATEGORY = 1
VEHICLE_SUPERCATEGORY = "vehicle"
DEFAULT_SPLIT = "train2017"


class Outline(NamedTuple):
    """An annotated object."""

    support: int | None
    """PERSON, VEHICLE, or None for anything else."""
    segmentation: Any
    """In COCO's format: polygons, or run lengths in one of two forms."""


class Photo(NamedTuple):
    """An image of the split."""

    file_name: str
    height: int
    width: int
    outlines: list[Outline]


def split_of(name: str) -> str:
    """The split that a data set's name asks for: `coco` or `coco:SPLIT`.

    Raises:
        UserError: The split is empty, or could lead out of the data root.
    """
    _, colon, split = name.partition(":")
    if colon and (not split or Path(split).name != split):
        raise UserError(f"dataset {name} names no split of COCO; write coco or, for example, coco:val2017")
    return split or DEFAULT_SPLIT


def find_files(data_root: str | None, split: str) -> tuple[Path, Path]:
    """The annotations of a split and the folder of its photographs."""
    layout = f"annotations/instances_{split}.json and {split}/*.jpg"
    if data_root is None:
        fetch = "soopf data fetch coco downloads them to the folder data"
        raise UserError(f"dataset coco reads {layout}; {fetch}; name the folder that holds them with --data-root")
    root = Path(data_root).expanduser()
    annotations, folder = root / "annotations" / f"instances_{split}.json", root / split
    for path in (annotations, folder):
        if not path.exists():
            raise UserError(
                f"there is no {path}; {data_root} must hold {layout}: check --data-root and the split in coco:SPLIT"
            )
    return annotations, folder


def read_annotations(path: Path) -> dict[int, Photo]:
    """The images of a split by id, each with its outlines."""
    try:
        document = json.loads(path.read_bytes())
        vehicles = {c["id"] for c in document["categories"] if c["supercategory"] == VEHICLE_SUPERCATEGORY}
        photos = {i["id"]: Photo(i["file_name"], i["height"], i["width"], []) for i in document["images"]}
        kinds = {PERSON_CATEGORY: PERSON} | dict.fromkeys(vehicles, VEHICLE)
        for annotation in document["annotations"]:
            support = None if annotation["iscrowd"] else kinds.get(annotation["category_id"])
            photos[annotation["image_id"]].outlines.append(Outline(support, annotation["segmentation"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as COCO instances ({error!r}); download it again") from error
    return photos


def sha256_of_all(paths: Iterable[Path]) -> str:
    """The SHA-256 of the SHA-256 of every file, in order."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            digest.update(bytes.fromhex(file_sha256(path)))
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}; download it again") from error
    return digest.hexdigest()
