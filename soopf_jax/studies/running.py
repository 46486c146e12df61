"""Carry out the runs of a plan in one process, one after another, under one progress bar.

In: planned runs. Out: the result of each, or the reason why there is none. Runs that differ only in the layer of their
encoder are encoded together, in one pass over the images. Runs whose tables have the same shape share their compiled
programs. A run that fails does not stop the others, and a plan that is carried out again goes on where it stopped.
"""

import contextlib
import io
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

import jax

from soopf_jax.errors import UserError
from soopf_jax.experiments import results
from soopf_jax.experiments.inputs import Given, substrate_request
from soopf_jax.experiments.options import Bench, check, command
from soopf_jax.features import store, store_writer
from soopf_jax.features.table import build, build_layers, recipe
from soopf_jax.report.run_folder import carry_out
from soopf_jax.runtime import atomic, progress
from soopf_jax.runtime.progress import Advance, ProgressBar
from soopf_jax.studies.opening import Openers
from soopf_jax.studies.planning import Planned, encoded_with, too_long
from soopf_jax.studies.rows import Obstacle, Places, arm_names, folder, placed
from soopf_jax.types import Encoder, EncoderRequest, Json, Substrate, SubstrateRequest

KEEP = ("none", "study", "all")
"""Which features stay on the disk: none (they are removed as soon as no run needs them), those of the study until it is
complete, or all."""
LEDGER = "features.txt"
"""A file in the folder of results. It names the stores that were made for the study, which may be removed again."""

Opened = TypeVar("Opened", bound=Substrate | Encoder)
Found = dict[Bench, Json | Obstacle]
"""The result of every run, or the reason why there is none."""


def carry_out_all(
    planned: Sequence[Planned], places: Places, openers: Openers, keep: str = "all", only: Collection[str] = ()
) -> Found:
    """Carry out every run that is not done and can run.

    Args:
        planned: The plan.
        places: The folders of results, data and features.
        openers: What opens data sets and encoders.
        keep: One of KEEP.
        only: The names of the rows to carry out; empty: all. The features of other rows are made where that costs no
            further pass over the images, because other processes are about to need them.
    """
    features = Features(places, openers, keep)
    possible = [p for p in planned if not p.document and not p.obstacle]
    to_run = [p for p in possible if not only or folder(p.run) in only]
    others = [p for p in possible if only and folder(p.run) not in only]
    found: Found = {p.run: p.document or p.obstacle or Obstacle("not run yet") for p in planned}
    with whole_study(float(sum(p.seconds for p in to_run))) as study:
        for number, p in enumerate(to_run):
            with study.row(p) as shares:
                found[p.run] = carry_out_one(p.run, places, features, [*to_run[number:], *others], shares)
            features.release(p.run, [later.run for later in to_run[number + 1 :]])
    if not any(isinstance(result, Obstacle) for result in found.values()):
        features.release_all()
    return found


def dry(planned: Sequence[Planned], places: Places) -> Found:
    """What is done. Every other run has the reason why it is not, with its command."""
    return {p.run: p.document or p.obstacle or too_long(p.run, p.seconds, places) for p in planned}


def carry_out_one(
    run: Bench, places: Places, features: "Features", to_come: Sequence[Planned], shares: "Shares"
) -> Json | Obstacle:
    """The result of one run, or why it failed."""
    options = placed(run, places)
    print(f"\n{command(options)}", file=sys.stderr, flush=True)
    try:
        features.build(run, [p.run for p in to_come], shares.encoding)
        with contextlib.redirect_stdout(io.StringIO()):
            carry_out(check(options), shares.training, features.opened)
        return results.load(places.runs / folder(run)).document
    except (UserError, MemoryError, OSError, jax.errors.JaxRuntimeError) as error:
        said = str(error) or type(error).__name__
        print(f"not run: {said}", file=sys.stderr)
        return Obstacle(said.partition(";")[0].splitlines()[0], (said.splitlines()[0],))


# ---------------------------------------------------------------------------------------------- features


class Features:
    """Makes the features of runs, all layers of an encoder together, and removes them when they are not needed."""

    def __init__(self, places: Places, openers: Openers, keep: str) -> None:
        self._places, self._openers, self._keep = places, openers, keep
        self._ledger = places.runs / LEDGER
        self.opened = Given(dataset=self._open_dataset, encoder=self._open_encoder)
        """For runs: what is open is not opened again."""

    def build(self, run: Bench, to_come: Sequence[Bench], bar: ProgressBar) -> None:
        """Make the features of a run and, in the same pass, those of later runs at other layers.

        Raises:
            UserError: They cannot be made.
        """
        place = self._place(run)
        if place is None or place.exists():
            return
        group = [other for other in (run, *to_come) if encoded_with(other) == encoded_with(run)]
        layers = list(dict.fromkeys(other.layer for other in group))
        encoder = self._openers.encoder(run.encoder_name, run.layer)
        substrate = self._openers.dataset(substrate_request(placed(run, self._places)))
        if isinstance(encoder, Obstacle) or isinstance(substrate, Obstacle):
            return  # the run says why
        self._note([self._place(other) for other in group])
        cache = self._places.cache_dir or None
        if encoder.layers is None:
            build(substrate, encoder, run.dtype, cache, bar)
        else:
            build_layers(substrate, encoder, layers, run.dtype, cache, bar)

    def release(self, run: Bench, to_come: Sequence[Bench]) -> None:
        """Remove the features of a finished run, unless they are kept or a later run needs them."""
        place = self._place(run) if self._keep == "none" else None
        if place is not None and place not in [self._place(other) for other in to_come]:
            self._remove([place.name])

    def release_all(self) -> None:
        """Remove what was made for a study that is complete, unless everything is kept."""
        if self._keep != "all":
            self._remove(self._noted())

    def _place(self, run: Bench) -> Path | None:
        """The folder of a run's store; None if its data set or encoder cannot be opened."""
        encoder = self._openers.encoder(run.encoder_name, run.layer)
        substrate = self._openers.dataset(substrate_request(placed(run, self._places)))
        if isinstance(encoder, Obstacle) or isinstance(substrate, Obstacle):
            return None
        return store.store_folder(recipe(substrate, encoder, run.dtype), self._places.cache_dir or None)

    def _open_dataset(self, request: SubstrateRequest) -> Substrate:
        return _there(self._openers.dataset(request))

    def _open_encoder(self, request: EncoderRequest) -> Encoder:
        return _there(self._openers.encoder(request.name, request.layer))

    def _noted(self) -> list[str]:
        return self._ledger.read_text().split() if self._ledger.exists() else []

    def _note(self, stores: Sequence[Path | None]) -> None:
        """Write down what is about to be made. An interrupted study then knows what it may remove."""
        new = [place.name for place in stores if place is not None and not place.exists()]
        with atomic.locked(self._ledger.with_name(f".{LEDGER}.lock"), f"waiting for another process in {LEDGER}"):
            noted = dict.fromkeys([*self._noted(), *new])
            atomic.write_bytes(self._ledger, "".join(f"{name}\n" for name in noted).encode())

    def _remove(self, names: Sequence[str]) -> None:
        own, cache = self._noted(), self._places.cache_dir or None
        there = {listed.name for listed in store_writer.list_stores(cache)}
        for name in names:
            if name in own and name in there:
                store_writer.remove(name, cache)


def _there(part: Opened | Obstacle) -> Opened:
    if isinstance(part, Obstacle):
        raise UserError("; ".join([part.reason, *part.remedies]))
    return part


# ---------------------------------------------------------------------------------------------- the one bar


class Shares(NamedTuple):
    """The bars of one run. They advance the bar of the study."""

    encoding: ProgressBar
    training: ProgressBar


class StudyBar:
    """The bar of a study counts expected seconds. Every run has its share of them."""

    def __init__(self, advance: Advance) -> None:
        self._advance, self._lock = advance, Lock()
        self._exact, self._shown = 0.0, 0

    def add(self, seconds: float) -> None:
        """Advance the bar by whole seconds, and keep the rest for the next time."""
        with self._lock:
            self._exact += seconds
            whole = int(self._exact) - self._shown
            self._shown += whole
        if whole > 0:
            self._advance(whole)

    @contextlib.contextmanager
    def row(self, planned: Planned) -> Iterator[Shares]:
        """The bars of a run. At its end the bar of the study stands where the plan has it, however much was left."""
        end, arms = self._exact + planned.seconds, len(arm_names(planned.run).assignments)
        training = (planned.seconds - planned.encoding) / arms
        yield Shares(self._part(planned.encoding), self._part(training))
        self.add(max(0.0, end - self._exact))

    def _part(self, seconds: float) -> ProgressBar:
        @contextlib.contextmanager
        def bar(description: str, total: int) -> Iterator[Advance]:
            del description
            yield lambda n: self.add(seconds * n / max(total, 1))

        return bar


@contextlib.contextmanager
def whole_study(seconds: float) -> Iterator[StudyBar]:
    """One bar for all runs of a study."""
    if seconds <= 0:
        yield StudyBar(lambda n: None)
        return
    with progress.bar("study", max(1, int(seconds)), unit=progress.SECONDS) as advance:
        yield StudyBar(advance)
