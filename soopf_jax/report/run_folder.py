"""One run as a result folder: opened, trained, printed and saved with its report, or shown if it is done already.

In: the options of a run. Out: a folder with result.json, fits.npz and report.html; progress on stderr, the table on
stdout. Every process of a distributed run goes through the same steps, and the first one writes.
"""

import contextlib
import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from soopf_jax.encoders.downloads import to_download
from soopf_jax.errors import UserError
from soopf_jax.experiments import dry_run, results
from soopf_jax.experiments.experiment import Data
from soopf_jax.experiments.inputs import Given, Inputs
from soopf_jax.experiments.opened import OpenedRun, open_run
from soopf_jax.experiments.options import Bench, default_out
from soopf_jax.experiments.results import Result
from soopf_jax.fitting import devices, peers
from soopf_jax.fitting.selection import NOTHING
from soopf_jax.fitting.train import Session
from soopf_jax.report import loggers, page, summary, tables
from soopf_jax.report.examples import Examples
from soopf_jax.runtime import atomic, progress
from soopf_jax.runtime.hashing import digest
from soopf_jax.runtime.progress import ProgressBar
from soopf_jax.runtime.text import printable
from soopf_jax.types import Json


def carry_out(bench: Bench, bar: ProgressBar | None = None, given: Given | None = None) -> None:
    """The whole path, from names to a result folder.

    Args:
        bench: The options.
        bar: Shows the progress of training. By default, a bar for each arm does.
        given: Data sets and encoders that are open already.

    Raises:
        UserError: The options ask for something that cannot be done here.
    """
    if bench.distributed:
        devices.join_processes()
    stdout = contextlib.nullcontext() if devices.is_main() else contextlib.redirect_stdout(io.StringIO())
    with stdout, progress.shown(devices.is_main()), peers.watched():
        _carry_out(bench, bar, given)


def _carry_out(bench: Bench, bar: ProgressBar | None, given: Given | None) -> None:
    if bench.dry_run and not bench.features and (hub_id := to_download(bench.encoder_name)):
        raise UserError(f"a dry run downloads nothing, and {hub_id} is not here; hf download {hub_id} brings it")
    with progress.phase("opening data and encoder"):
        run = open_run(bench, given)
    if bench.dry_run:
        print(dry_run.describe(run, bench.target, bench.fits_per_program or None))
        return
    config = run.config
    out = Path(bench.out) if bench.out else default_out(bench, config)
    width = tables.terminal_width(bench.wide)
    if already_done(out, config, bench.overwrite, bench.keep, width):
        return
    atomic.check_writable(out)
    data = run.load(partial(progress.bar, unit="images"))
    tell(summary.headline(config, run.experiment.label(run.protocol), data.table.grid.n_cells))
    with working_on(out, config, bench.resume) as (work, waited):
        if devices.agreed(waited and already_done(out, config, bench.overwrite, bench.keep, width)):
            atomic.remove(work)
            return
        result, _ = train_and_save(run, data, session_of(bench, work, config, bar), out, bench.overwrite)
    if devices.is_main():
        loggers.log(bench.log, result)
    print(summary.text(result.document, width))
    print(f"\nresult: {out}/result.json  report: {out}/report.html")
    advise(result.document)


def train_and_save(
    run: OpenedRun, data: Data, session: Session, out: Path, replace: bool
) -> tuple[Result, Examples | None]:
    """Train every arm, write the result folder, and remove the session's work folder, which is no longer needed.

    Args:
        run: What is trained.
        data: Its features.
        session: How; it has a work folder.
        out: The result folder.
        replace: Whether a folder that is there may be replaced.

    Returns:
        The result, and what its report shows as examples, in the process that writes it.
    """
    result = run.train(data, session)
    if not devices.is_main() or session.work is None:
        return result, None
    with progress.phase("writing the report"):
        examples = pictures(run.inputs[0], result)
        results.save(result, out, page.pages(result, examples), replace, within=session.work)
    atomic.remove(session.work)
    return result, examples


def tell(line: str) -> None:
    """Print a line about progress on stderr. The result follows at the end, when it is known what can be trusted."""
    if devices.is_main():
        print(line, file=sys.stderr, flush=True)


def advise(document: Json) -> None:
    """Print the hints on a result on stderr, after its tables."""
    if text := summary.advice(document):
        sys.stdout.flush()
        tell(text)


def session_of(bench: Bench, work: Path, config: Json, bar: ProgressBar | None = None) -> Session:
    """How the run is carried out."""
    return Session(
        work,
        (bar or partial(progress.bar, unit="fit-steps")) if devices.is_main() else None,
        bench.fits_per_program or None,
        bench.checkpoint_seconds,
        on_arm=lambda arm: tell("{}: {} {}".format(*summary.main_score(config, arm))),
        config=config,
        keep=bench.keep,
    )


def pictures(opened: Inputs, result: Result) -> Examples | None:
    """The images of the pairs that the report shows as examples, with what the fits made of them."""
    if opened.substrate is None or opened.encoder is None or result.readings is None:
        return None
    readings, substrate = result.readings, opened.substrate
    images = substrate.render(readings.pair.tolist())
    window = opened.encoder.window(*substrate.image_size)
    cell = substrate.cell[readings.pair]
    return Examples(
        readings.pair, cell, images.source, images.edited, window, readings.region, readings.masks, readings.energy
    )


def already_done(out: Path, config: Json, overwrite: bool, keep: str | None = None, width: int | None = None) -> bool:
    """Print the result at `out` if it is finished and has the same configuration.

    Args:
        out: The result folder.
        config: The configuration of the run that is asked for.
        overwrite: Whether the run is to be done again in any case.
        keep: What the result is to have kept of its fits; None: anything.
        width: How wide the tables may be; None: as wide as they are.

    Returns:
        Whether it was printed.

    Raises:
        UserError: Something else is at `out` and would be lost, or the result has kept less than is asked for.
    """
    if overwrite or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    document = results.load(out).document
    if document["config"] != config:
        raise UserError(f"{out} holds a run of another configuration; choose another --out or add --overwrite")
    if lacking := [name for name in results.KEPT_FILES[keep or NOTHING] if not (out / name).exists()]:
        raise UserError(f"{out} is finished and has not kept {lacking[-1]}; add --overwrite to run it again")
    print(printable(f"{summary.caveat(document)}already done: {out}"))
    print(summary.text(document, width))
    advise(document)
    return True


@contextlib.contextmanager
def working_on(out: Path, config: Json, resume: bool) -> Iterator[tuple[Path, bool]]:
    """The work folder of a run, and whether another process had to be waited for.

    The folder keeps finished groups of fits. It depends on the configuration, the versions and the device.
    """
    key = digest({"config": config, "environment": results.environment()})[:10]
    work = out.parent / f".{out.name}.work-{key}"
    waiting = f"waiting for another process that is working on {out}"
    with atomic.only_process(work, waiting) if devices.is_main() else contextlib.nullcontext(False) as waited:
        if devices.is_main() and not resume:
            atomic.clear(work)
        yield work, waited
