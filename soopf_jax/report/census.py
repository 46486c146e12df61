"""A census of grids as text for the terminal, as a figure and as a page."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from soopf_jax.experiments.census import Census
from soopf_jax.report import html_page
from soopf_jax.report.figures import Plot, render
from soopf_jax.report.tables import Table, html
from soopf_jax.report.tables import text as table_text
from soopf_jax.runtime.palette import BLUE, VERMILION
from soopf_jax.runtime.text import UNDEFINED, count, interval, number
from soopf_jax.scoring.ranks import UNKNOWN
from soopf_jax.scoring.verdict import UNIDENTIFIABLE
from soopf_jax.types import Json

CRITERIA = {"loss": "training loss", "validation": "flat validation accuracy"}
CAPTION = (
    "Each dot is a readout trained under one grid: its training loss against the number of observed labels that the "
    "grid has in their place. Orange: the true grid of each fold. The line is the mean. Losses are relative to that of "
    "the true grid of the same fold, so a dot below zero is a wrong grid that fits better."
)


def all_tables(document: Json) -> list[Table]:
    """The summary first, then the folds, then the wrong grids that fit best."""
    return [summary(document), folds(document), winners(document)]


def summary(document: Json) -> Table:
    """Where the true grid ranks, over all folds."""
    rows = [
        (
            CRITERIA[name],
            str(found["folds"]),
            with_interval(found["first"], found["first_ci95"]),
            with_interval(found["mean_reciprocal_rank"], found["mean_reciprocal_rank_ci95"]),
            f"{found['median_rank']:g} of {document['grids']}" if found["folds"] else UNDEFINED,
            number(found["chance_mean_reciprocal_rank"]),
        )
        for name, found in document["summary"].items()
    ]
    header = (
        "ranked by",
        "folds",
        "true grid first [95%]",
        "mean reciprocal rank [95%]",
        "median rank",
        "MRR by chance",
    )
    return Table("Where the true grid ranks", header, rows)


def with_interval(value: float | None, ci95: Sequence[float] | None) -> str:
    """`0.556 [0.267, 0.811]`, or a dash for an undefined value."""
    return UNDEFINED if value is None else f"{number(value)} {interval(ci95)}"


def folds(document: Json) -> Table:
    """The rank of the true grid in every fold, and its loss beside that of the best wrong grid."""
    rows = [
        (
            f"{fold['seed']} {fold['held_out']}",
            *(UNDEFINED if fold["rank"][name] is None else str(fold["rank"][name]) for name in CRITERIA),
            number(fold["loss_of_truth"], 4),
            number(fold["best_wrong_loss"], 4),
            number(fold["inj_of_truth"]),
        )
        for fold in document["folds"]
    ]
    header = (
        "seed and held-out cell",
        "rank by loss",
        "rank by validation",
        "loss of the true grid",
        "best wrong loss",
    )
    return Table("Folds", (*header, "INJ of the true grid"), rows)


def winners(document: Json) -> Table:
    """The best wrong grid of every fold, and whether it beats the true one."""
    rows = [
        (
            f"{fold['seed']} {fold['held_out']}",
            _beats(best["loss"], fold["loss_of_truth"]),
            UNDEFINED if best["in_place"] is None else str(best["in_place"]),
            number(best["inj"]),
            UNDEFINED if best["moved"] is None else best["moved"],
        )
        for fold in document["folds"]
        for best in fold["winners"][:1]
    ]
    header = ("seed and held-out cell", "beats the true grid", "labels in place", "INJ", "labels that are elsewhere")
    return Table("The best wrong grid of each fold", header, rows)


def _beats(loss: float, loss_of_truth: float | None) -> str:
    return UNDEFINED if loss_of_truth is None else ("yes" if loss < loss_of_truth else "no")


def verdict(document: Json) -> str:
    """The answer in one sentence."""
    found = document["summary"]["loss"]
    left_out = found.get("left_out", 0)
    said = f"; {count(left_out, 'fold')} left out, where the true grid's fit failed" if left_out else ""
    if not found["folds"]:
        return f"no answer{said}"
    missed = found["folds"] - round(found["first"] * found["folds"])
    if not missed:
        return f"identifiable: the true grid has the least training loss in all {found['folds']} folds{said}"
    return f"{UNIDENTIFIABLE} in {missed} of {found['folds']} folds (by training loss, in this training){said}"


def failures(document: Json) -> str:
    """A line about failed fits; empty if there are none."""
    failed = document.get("failed_fits", 0)
    if not failed:
        return ""
    return (
        f"{count(failed, 'fit')} failed with a non-finite loss or gradient. A grid whose fit failed counts as worse "
        "than any other."
    )


def landscape(census: Census) -> Figure:
    """Loss against the number of labels in their place."""
    columns = census.columns
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    in_place = np.broadcast_to(columns["in_place"], columns["loss"].shape)
    trained = np.isfinite(columns["loss"])
    wrong = trained & trained[..., :1]
    relative = np.full(wrong.shape, np.nan)
    np.subtract(columns["loss"], columns["loss"][..., :1], out=relative, where=wrong)
    jitter = np.random.Generator(np.random.Philox(0)).uniform(-0.3, 0.3, relative.shape)
    wrong[..., 0] = False
    dots: Any = {"linestyle": "none", "marker": ".", "markersize": 2, "alpha": 0.3, "rasterized": True}
    axes.plot((in_place + jitter)[wrong], relative[wrong], color=BLUE, **dots)
    counts = np.unique(in_place[wrong])
    axes.plot(
        counts, [relative[wrong & (in_place == count)].mean() for count in counts], color="k", marker="o", label="mean"
    )
    axes.plot(
        in_place[..., 0].ravel(),
        np.zeros(in_place[..., 0].size),
        color=VERMILION,
        marker="D",
        linestyle="none",
        label="true grid",
    )
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set(xlabel="observed labels in their place", ylabel="training loss, relative to the true grid's")
    axes.legend()
    return figure


def files(census: Census) -> dict[str, bytes]:
    """The page and its figure, by file name."""
    document = census.document
    title = "Census of {} on {}".format(
        document["config"].get("encoder") or "features", document["config"].get("dataset") or "a file"
    )
    drawn = {}
    if UNKNOWN not in census.columns["in_place"]:
        drawn = render(Plot("Landscape", CAPTION, lambda: landscape(census)))
    body = [
        f"<h1>{escape(title)}</h1><p class='note'>{escape(verdict(document))}</p>",
        f"<p>{document['grids']:,} of {document['all_grids']:,} grids,"
        f" {document['provenance']['fit_steps']:,} fit-steps. {escape(failures(document))}</p>",
        figure_of(drawn["png"]) if drawn else "",
        *map(html, all_tables(document)),
    ]
    page = html_page.page(title, "".join(body))
    return {"report.html": page.encode(), **{f"landscape.{suffix}": data for suffix, data in drawn.items()}}


def figure_of(png: bytes) -> str:
    """The figure with its caption."""
    picture = html_page.image(png, "image/png", CAPTION)
    return f"<figure><div class='wide'>{picture}</div><figcaption>{escape(CAPTION)}</figcaption></figure>"


def text(document: Json) -> str:
    """What the terminal shows."""
    return "\n\n".join([*map(table_text, all_tables(document)), *filter(None, [failures(document)]), verdict(document)])
