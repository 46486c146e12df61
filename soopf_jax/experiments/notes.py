"""The warnings of a result: what its reader should know before using a number."""

import numpy as np

from soopf_jax.experiments.naming import UNCERTAIN_READOUTS
from soopf_jax.experiments.training import TrainingRun
from soopf_jax.fitting import devices
from soopf_jax.fitting.arm import Arm
from soopf_jax.fitting.objectives import weights_of
from soopf_jax.fitting.prepare import PreparedTable, dims_of
from soopf_jax.fitting.router_stats import has_masks
from soopf_jax.runtime.text import count
from soopf_jax.types import FeatureTable, Json

PAIRS_AT_ONCE = 32
"""Pairs of a table that are looked at together. A constant channel is rare: the first few pairs usually decide."""


def unseen_pairs(table: PreparedTable) -> list[str]:
    """A warning if the encoder does not see some edit at all."""
    changed = devices.to_host(table.changed)
    if changed.all():
        return []
    unchanged = int((~changed).sum())
    return [f"{unchanged} of {len(changed)} pairs have zero delta: the encoder does not see their edit"]


def constant_channels(table: FeatureTable) -> list[str]:
    """A warning if some channels have one value in every patch of every image, and so tell nothing."""
    suspects, rows = np.arange(table.source.shape[2]), slice(0, PAIRS_AT_ONCE)
    first = [tokens[rows][0, 0] for tokens in (table.source, table.delta)]
    while len(suspects) and rows.start < len(table.cell):
        for tokens, value in zip((table.source, table.delta), first, strict=True):
            suspects = suspects[(tokens[rows][:, :, suspects] == value[suspects]).all(axis=(0, 1))]
        rows = slice(rows.stop, rows.stop + PAIRS_AT_ONCE)
    if not len(suspects):
        return []
    return [f"{len(suspects)} of {table.source.shape[2]} channels are constant over all images: they tell nothing"]


def maskless(arm: Arm, run: TrainingRun) -> list[str]:
    """A warning if the objective has a mask term, but the readout has no masks."""
    dims = dims_of(run.table, run.protocol)
    if not weights_of(arm.objective).get("mask") or has_masks(arm.readout, run.prepared, dims):
        return []
    return [f"readout {arm.readout_name} has no masks, so the loss term mask is 0"]


def uncertain_form(arm: Arm) -> list[str]:
    """A warning if the readout's form is a guess of ours."""
    if arm.readout_name not in UNCERTAIN_READOUTS:
        return []
    return [f"readout {arm.readout_name}: {UNCERTAIN_READOUTS[arm.readout_name]}; the paper gives no equation for it"]


def trouble(record: Json, main_score: float | None) -> list[str]:
    """Warnings of an arm with failed fits, or with a score that is undefined because of them."""
    found = []
    if record["failed_fits"]:
        failed = count(record["failed_fits"], "fit")
        found.append(f"{record['assignment']}: {failed} failed with a non-finite loss or gradient")
    if main_score is None:
        found.append(f"{record['assignment']}: incomplete, some fold has no restart that could be selected")
    return found
