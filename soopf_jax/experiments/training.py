"""How every experiment trains: tables are prepared, a plan is made, and arms are trained one after another."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import jax

from soopf_jax.experiments import keeping
from soopf_jax.experiments.experiment import Data
from soopf_jax.fitting import devices, proposals
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.prepare import PreparedTable, prepare_table, source_transform
from soopf_jax.fitting.protocol import Fits, Protocol
from soopf_jax.fitting.train import Job, Session, make_plan, train_arm
from soopf_jax.fitting.unfinished import Columns, Plan
from soopf_jax.runtime.progress import phase
from soopf_jax.types import FeatureTable


class TrainingRun(NamedTuple):
    """What the arms of a run share."""

    table: FeatureTable
    prepared: PreparedTable
    test: PreparedTable | None
    """Pairs whose energies are asked for, where they are not those of the table."""
    protocol: Protocol
    session: Session
    plan: Plan


def begin(data: Data, arms: Sequence[Arm], protocol: Protocol, fits: Fits, session: Session) -> TrainingRun:
    """Prepare the tables, plan the run by its first arm, and decide what is kept of it."""
    arm = arms[0]
    session = session._replace(keep=decide_keep(data, arms, protocol, fits, session))
    with phase("preparing the features"):
        source = source_transform(data.table, protocol)
        prepared = prepare_table(data.table, arm.readout, source)
        test = None if data.test is None else prepare_table(data.test, arm.readout, source)
    plan = make_plan(Job(arm, data.table, prepared, protocol, fits), session, test)
    announce(plan, session)
    return TrainingRun(data.table, prepared, test, protocol, session, plan)


def train(run: TrainingRun, arm: Arm, fits: Fits) -> Columns:
    """Train and evaluate every fit of an arm; rows in the order of `fits`."""
    job, proposed = proposals.place(Job(arm, run.table, run.prepared, run.protocol, fits), run.plan, run.session)
    return train_arm(job, run.plan, run.session, run.test) | proposed


def decide_keep(data: Data, arms: Sequence[Arm], protocol: Protocol, fits: Fits, session: Session) -> str:
    """What the run keeps of its selected fits. Its size is told on stderr, if the session shows its progress."""
    n_folds = len(arms) * keeping.count_folds(fits)
    keep = keeping.what_to_keep(session.keep, keeping.bytes_of_predictions(n_folds, data))
    told = keeping.announcement(session.keep, keep, n_folds, data, keeping.bytes_of_params(arms[0], data, protocol))
    if session.progress and told:
        print(told, file=sys.stderr)
    return keep


def announce(plan: Plan, session: Session) -> None:
    """Say on stderr what was planned, if the session shows its progress."""
    if session.progress:
        shared = f" over {jax.device_count()} devices" if jax.device_count() > 1 else ""
        needed, there = plan.bytes_per_device / 1e9, devices.memory_of_device() / 1e9
        beside = f", {plan.lanes} programs side by side" if plan.lanes > 1 else ""
        print(
            f"{plan.fits_per_program} fits per program{shared}: {needed:.2f} of {there:.1f} GB{beside}", file=sys.stderr
        )
