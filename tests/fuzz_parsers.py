"""Coverage-guided fuzzing of the parsers that we wrote: `python tests/fuzz_parsers.py [-max_total_time=60] [FOLDER]`.

Needs atheris. The first byte of an input chooses the parser, the rest is the file that it reads. A parser may give a
value or raise a UserError (those of our own files: a ValueError or nothing); anything else is a finding, which
libFuzzer saves. FOLDER keeps what was learnt for the next time.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile, ZipInfo

import atheris

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["soopf_jax"]):
    from soopf_jax.encoders import hf_checkpoint, hf_preprocess
    from soopf_jax.errors import UserError
    from soopf_jax.experiments import options, results
    from soopf_jax.features import npz, store, store_writer
    from soopf_jax.fitting.unfinished import DIGEST, PLAN, read_plan
    from soopf_jax.runtime.arrays import npz_bytes, read_npz
    from soopf_jax.substrates import coco, folder
    from soopf_jax.substrates.originals import unpack

from tests.report_result import dealt_result  # noqa: E402
from tests.test_coco import CATEGORIES  # noqa: E402
from tests.tiny_checkpoints import PREPROCESSOR  # noqa: E402

GOOD = dealt_result()
HOME = Path(tempfile.mkdtemp())


def result_json(path: Path) -> None:
    """result.json beside good fits."""
    run = HOME / "run"
    run.mkdir(exist_ok=True)
    (run / "fits.npz").write_bytes(npz_bytes(GOOD.fits))
    (run / "result.json").write_bytes(path.read_bytes())
    results.load(run)


def store_manifest(path: Path) -> None:
    """A store of which there is a manifest only."""
    place = HOME / "store"
    place.mkdir(exist_ok=True)
    (place / store.MANIFEST).write_bytes(path.read_bytes())
    store.open_store(place)


def annotations(path: Path) -> None:
    """COCO's JSON, and every outline in it."""
    for photo in coco.read_annotations(path).values():
        for outline in photo.outlines:
            coco.encode(outline.segmentation, photo)


def plan_of_a_run(path: Path) -> None:
    """What an unfinished run keeps of its choices."""
    work = HOME / "work"
    work.mkdir(exist_ok=True)
    (work / PLAN).write_bytes(path.read_bytes())
    read_plan(work)


def preprocessor(path: Path) -> None:
    """The settings of an image processor."""
    settings = hf_checkpoint._read_json(path)
    if settings is not None:
        hf_preprocess.read_preprocessing(settings, "ViTImageProcessor")


PARSERS: tuple[Callable[[Path], object], ...] = (
    npz.load_npz,
    lambda path: read_npz(path.read_bytes()),
    result_json,
    store_manifest,
    store_writer._journal_lines,
    plan_of_a_run,
    folder.read_table,
    annotations,
    preprocessor,
    lambda path: options.parse_weights(path.read_text("utf-8", "replace").split()),
    lambda path: unpack.place(ZipInfo(path.read_text("utf-8", "replace") or "x"), "val2017"),
)


def one_input(data: bytes) -> None:
    """Let the parser that the first byte names read the rest."""
    if not data:
        return
    path = HOME / "input"
    path.write_bytes(data[1:])
    try:
        PARSERS[data[0] % len(PARSERS)](path)
    except (UserError, BadZipFile):
        pass
    except ValueError:
        if data[0] % len(PARSERS) != 1:
            raise


def seeds(corpus: Path) -> None:
    """One good file for each parser, where fuzzing starts."""
    table = "source,edited,region,support,operation\n1.png,1.png,1.png,a,b\n"
    outline = {"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 4]], "iscrowd": 0}
    photo = {"id": 1, "file_name": "1.jpg", "width": 8, "height": 8}
    instances = {"images": [photo], "annotations": [outline], "categories": CATEGORIES}
    fits = npz_bytes({"seed": GOOD.fits["seed"][:2]})
    document = json.dumps(results.sealed(GOOD.document, npz_bytes(GOOD.fits))).encode()
    plan = {"fits_per_program": 9, "bytes_per_device": 10, "lanes": 2}
    contents = {
        1: fits,
        2: document,
        5: json.dumps(plan | {DIGEST: digest(plan)}).encode(),
        6: table.encode(),
        7: json.dumps(instances).encode(),
        8: json.dumps(PREPROCESSOR).encode(),
        9: b"mask=0.5 cell=1",
        10: b"val2017/1.jpg",
    }
    for number, content in contents.items():
        (corpus / f"seed-{number}").write_bytes(bytes([number]) + content)


if __name__ == "__main__":
    folders = [arg for arg in sys.argv[1:] if not arg.startswith("-")]
    corpus = Path(folders[0] if folders else tempfile.mkdtemp())
    corpus.mkdir(parents=True, exist_ok=True)
    seeds(corpus)
    options = [arg for arg in sys.argv[1:] if arg.startswith("-")] or ["-max_total_time=60"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()
