"""Truncates or flips a bit in files of every kind that the program reads.

The program must never mistake a damaged file for the original. It may refuse the file with an error of one line, do the
lost work again, or treat the file as a different input with a different key.
"""

import contextlib
import io
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from soopf_jax import compare, leaderboard
from soopf_jax.errors import UserError
from soopf_jax.features import npz
from soopf_jax.fitting import assignments, objectives
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.prepare import prepare_table
from soopf_jax.fitting.protocol import leave_one_cell_out
from soopf_jax.fitting.train import Job, Session, make_plan, train_arm
from soopf_jax.fitting.unfinished import PLAN, Plan
from soopf_jax.readouts.soopf import READOUT
from soopf_jax.runtime.arrays import npz_bytes
from soopf_jax.runtime.progress import ProgressBar
from tests import test_coco, test_folder, test_shapes3d
from tests.faults import runs
from tests.faults.kills import fits_differ
from tests.faults.runs import Ended, bench_here, content, features_here, here
from tests.faults.tally import Tally
from tests.planted import SMALL, SMALL_OPTIONS, small_table
from tests.test_train import Interrupted, interrupted_after

Files = Sequence[Path]


@contextlib.contextmanager
def damaged(files: Files, rng: np.random.Generator) -> Iterator[Path]:
    """Truncate one of the files or flip one bit in it, and restore it at the end of the block."""
    path = files[rng.integers(len(files))]
    original = path.read_bytes()
    if rng.random() < 0.3:
        path.write_bytes(original[: rng.integers(len(original))])
    else:
        changed = bytearray(original)
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
    try:
        yield path
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(original)


# ----------------------------------------------------------------------------------------- what we write


def stores(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage chunks, metadata and manifest of a feature store; then read it with a run and with `verify`."""
    tally = Tally("damaged feature store")
    command = (*runs.TINY_PARTS, "--pairs-per-cell", 10, "--cache-dir", folder / "cache", *runs.SMALL, "--out")
    tally.problems += filter(None, [bench_here(*command, folder / "whole").failure()])
    (store,) = (path for path in (folder / "cache" / "features").iterdir() if path.is_dir())
    files = sorted(path for path in store.rglob("*") if path.is_file())
    for number in range(tries):
        out = folder / str(number)
        with damaged(files, rng) as path:
            verified = features_here("verify", "--cache-dir", folder / "cache")
            met = bench_here(*command, out)
        found = None if verified.code == 2 else f"verify did not find {path.name}"
        wrong = met.code == 0 and fits_differ(out, folder / "whole")
        tally.record([met.complaint(), verified.complaint(), found], wrong)
    ended = bench_here(*command, folder / "after")
    tally.record([ended.failure()], wrong=fits_differ(folder / "after", folder / "whole"))
    return tally


def unfinished_work(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage checkpoints, finished groups or the plan in the work folder of an interrupted run, and continue it."""
    tally = Tally("damaged checkpoint, group of fits or plan")
    table, arm = small_table(), Arm(READOUT, assignments.LEARNED, objectives.CORE)
    fits = leave_one_cell_out(table.grid, SMALL)
    prepared, work = prepare_table(table, READOUT), folder / "interrupted"
    work.mkdir()

    job = Job(arm, table, prepared, SMALL, fits)

    def plan(place: Path) -> Plan:
        return make_plan(job, Session(place, lanes=1))  # one group after the other

    def run(place: Path | None, progress: ProgressBar | None = None) -> bytes:
        session = Session(place, progress, checkpoint_seconds=0.0)
        return npz_bytes(train_arm(job, chosen, session))

    chosen = plan(work)
    whole = run(None)
    with contextlib.suppress(Interrupted):
        run(work, interrupted_after(30))  # stops in the second of two groups
    checkpoints = sorted(path for path in work.glob("*.checkpoint/**/*") if path.is_file())
    kinds = [[work / PLAN], sorted(work.glob("*.npz")), checkpoints]
    for number in range(tries):
        copy, said, problem = folder / str(number), io.StringIO(), None
        shutil.copytree(work, copy)
        files = [copy / path.relative_to(work) for path in kinds[number % len(kinds)]]
        with damaged(files, rng) as path, contextlib.redirect_stderr(said), runs.counting_trained_groups() as trained:
            try:
                wrong = plan(copy) != chosen if path.name == PLAN else run(copy) != whole
            except Exception as error:
                problem, wrong = f"{path.name}: {error!r}", False
        traceback = said.getvalue() if "Traceback" in said.getvalue() else None
        needed = 1 + (path.suffix == ".npz")  # the unfinished group, and the damaged one
        tally.record([problem, traceback], wrong, lost=len(trained) > needed)
        shutil.rmtree(copy)
    return tally


def finished_results(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage result.json or fits.npz; then read them with the same command, the leaderboard and a comparison."""
    tally = Tally("damaged result")
    out, features = folder / "runs" / "whole", runs.tokens(folder)
    command = ("--features", features, "--assignment", "factorial", "learned", *SMALL_OPTIONS, "--out", out)
    tally.problems += filter(None, [bench_here(*command).failure()])
    readers: dict[str, Callable[[], Ended]] = {
        "bench": lambda: bench_here(*command),
        "leaderboard": lambda: here(leaderboard.main, [str(folder / "runs")]),
        "compare": lambda: here(compare.main, [f"{out}:factorial", f"{out}:learned"]),
    }
    printed = {name: read().out for name, read in readers.items()}
    for _ in range(tries):
        with damaged([out / "result.json", out / "fits.npz"], rng):
            met = {name: read() for name, read in readers.items()}
        wrong = any(ended.code == 0 and ended.out != printed[name] for name, ended in met.items())
        tally.record([ended.complaint() for ended in met.values()], wrong)
    tally.record([read().failure() for read in readers.values()])
    return tally


# ------------------------------------------------------------------------------------ what others write


def features_files(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage a --features file. It must be refused, or give exactly the tokens that were saved."""
    tally = Tally("damaged --features file")
    path = runs.tokens(folder)
    whole = npz.load_npz(path)
    for _ in range(tries):
        with damaged([path], rng):
            try:
                table = npz.load_npz(path)
            except UserError:
                ended = bench_here("--features", path, "--out", folder / "out")
                tally.record([ended.complaint(), None if ended.code == 2 else "it was not refused"])
                continue
        same = [np.array_equal(getattr(table, name), getattr(whole, name)) for name in ("source", "delta", "region")]
        tally.record(wrong=not all(same) or table.grid != whole.grid)
    return tally


def builds(
    name: str, command: Sequence[object], files: Files, folder: Path, tries: int, rng: np.random.Generator
) -> Tally:
    """Build features from damaged files. The build must fail, or its store must have another name than the original."""
    tally = Tally(name)
    built = features_here("build", *command, "--cache-dir", folder / "whole")
    tally.problems += filter(None, [built.failure()])
    whole = Path(built.out.strip())
    for number in range(tries):
        cache = folder / f"cache-{number}"
        with damaged(files, rng) as path:
            ended = features_here("build", *command, "--cache-dir", cache)
        made = Path(ended.out.strip())
        wrong = ended.code == 0 and made.name == whole.name and content(made) != content(whole)
        tally.record([f"{path.name}: {ended.complaint()}" if ended.complaint() else None], wrong)
        shutil.rmtree(cache, ignore_errors=True)
    ended = features_here("build", *command, "--cache-dir", folder / "after")
    tally.record([ended.failure()], wrong=content(Path(ended.out.strip())) != content(whole))
    return tally


def image_folders(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage the images and the table of folder:PATH."""
    root = test_folder.small(folder / "images")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    files += [root / "pairs.csv"] * (len(files) // 3)
    return builds("damaged image folder", ("--dataset", f"folder:{root}"), files, folder, tries, rng)


def annotations(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage the annotations and photographs of COCO."""
    root = folder / "coco"
    test_coco.write_many(root, people=4, both=2, vehicles=4, empty=4)
    files = sorted(path for path in root.rglob("*.jpg"))
    files += [root / "annotations" / "instances_tiny.json"] * 2 * len(files)
    command = ("--dataset", "coco:tiny", "--data-root", root, "--pairs-per-cell", 1)
    return builds("damaged COCO annotation or photograph", command, files, folder, tries, rng)


def h5_files(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage the internal structures, labels and images of 3dshapes.h5."""
    root = test_shapes3d.write(folder / "h5")
    command = ("--dataset", "shapes3d", "--data-root", root, "--pairs-per-cell", 1)
    tally = builds("damaged 3dshapes.h5", command, [root / "3dshapes.h5"], folder, tries // 2, rng)
    with h5py.File(root / "3dshapes.h5") as file:
        images = file["images"].id
        first = min(images.get_chunk_info(i).byte_offset for i in range(images.get_num_chunks()))
    head = root / "3dshapes.h5"
    whole = head.read_bytes()
    for number in range(tries - tries // 2):  # most bytes are pixels, so aim at what precedes them
        changed = bytearray(whole)
        changed[rng.integers(first)] ^= 1 << int(rng.integers(8))
        head.write_bytes(changed)
        ended = features_here("build", *command, "--cache-dir", folder / f"head-{number}")
        tally.record([ended.complaint()])
    head.write_bytes(whole)
    return tally


def checkpoint_folders(folder: Path, tries: int, rng: np.random.Generator) -> Tally:
    """Damage the config, the preprocessor settings and the weights of a Hugging Face checkpoint."""
    from tests.tiny_checkpoints import MODELS, save

    root = save(MODELS["dinov3"](), folder / "model")
    files = [root / name for name in ("config.json", "preprocessor_config.json", "model.safetensors")]
    command = ("--dataset", runs.TINY_PARTS[1], "--encoder", f"hf:{root}")
    return builds("damaged checkpoint of an encoder", command, files, folder, tries, rng)
