"""A comparison of runs (`compare.schema.json`) as tables for the terminal and as a page."""

from html import escape

from soopf_jax.experiments.naming import RunName, without_folder
from soopf_jax.report import html_page
from soopf_jax.report.comparison_plot import plot_of
from soopf_jax.report.figures import render
from soopf_jax.report.tables import Table, html
from soopf_jax.runtime.text import count, interval, number, p_value, signed
from soopf_jax.scoring import metrics, statistics
from soopf_jax.scoring.statistics import shown_interval
from soopf_jax.types import Json


def all_tables(document: Json) -> list[Table]:
    """Runs first, then their scores, then what differs."""
    return [runs(document), arms(document), t_tests(document), bootstraps(document), effects(document)]


def page(document: Json) -> str:
    """A self-contained page: the figure first, then tables that sort."""
    title = f"Comparison of {metrics.NAMES[document['score']]}"
    noted = "".join(f"<li>{escape(note)}</li>" for note in notes(document))
    plot = plot_of(document)
    figure = html_page.figure(plot.title, plot.caption, render(plot)["svg"])
    body = "".join(map(html, all_tables(document)))
    return html_page.page(title, f"<h1>{escape(title)}</h1>{figure}{body}<h2>Notes</h2><ul>{noted}</ul>")


def notes(document: Json) -> list[str]:
    """What a reader must know. Notes on these runs in particular come first."""
    undefined = [f"{_contrast(c)}: {c['undefined']}" for c in document["comparisons"] if c["undefined"]]
    tests = [test for c in document["comparisons"] for test in (c["paired_t"], c["bootstrap"])]
    n_tests = sum(test["p"] is not None for test in tests)
    score = metrics.NAMES[document["score"]]
    return [
        *document["notes"],
        *undefined,
        f"differences are in {score}; p (Holm) is corrected for the {count(n_tests, 'test')} shown here",
        f"~: approximate interval, of fewer than {statistics.ENOUGH_SEEDS} seeds or of a bootstrap; docs/statistics.md "
        "has the simulated coverage",
        f"bootstrap: {statistics.DRAWS:,} draws of seeds, then cells; its p is too small with few seeds",
        "d_z: mean difference divided by the SD of the seeds' differences, with its noncentral-t interval",
        f"detectable: found by the t-test at the {statistics.LEVEL:.0%} level with probability {statistics.POWER:.0%}",
    ]


def runs(document: Json) -> Table:
    """What was run, and the folder of each result."""
    named = [[without_folder(run[column]) for column in RunName._fields] for run in document["runs"]]
    rows = [
        (str(i + 1), *names, run["folder"]) for i, (names, run) in enumerate(zip(named, document["runs"], strict=True))
    ]
    return Table("Runs (the first is the reference)", ("run", *RunName._fields, "folder"), rows)


def arms(document: Json) -> Table:
    """Both scores of every arm, and how many of its seeds lose more than statistics.LOSS under injective scoring."""
    header = ("arm", "INJ", "95% interval", "many-to-one", "gap", f"seeds that lose > {statistics.LOSS}")
    return Table("Scores", header, [_arm_row(arm) for arm in document["arms"]])


def t_tests(document: Json) -> Table:
    """Paired t-tests."""
    rows = [
        (
            _contrast(c),
            str(c["n_seeds"]),
            signed(c["mean_difference"]),
            shown_interval(c["paired_t"]),
            number(c["paired_t"]["t"], 2),
            p_value(c["paired_t"]["p"]),
            p_value(c["paired_t"]["p_holm"]),
        )
        for c in document["comparisons"]
    ]
    header = ("arm - reference", "seeds", "difference", "95% interval", "t", "p", "p (Holm)")
    return Table("Paired t-tests over seeds", header, rows)


def bootstraps(document: Json) -> Table:
    """Paired bootstraps."""
    rows = [
        (
            _contrast(c),
            f"{c['n_seeds']} x {c['n_cells']}",
            signed(c["mean_difference"]),
            shown_interval(c["bootstrap"]),
            p_value(c["bootstrap"]["p"]),
            p_value(c["bootstrap"]["p_holm"]),
        )
        for c in document["comparisons"]
    ]
    header = ("arm - reference", "seeds x cells", "difference", "95% interval", "p", "p (Holm)")
    return Table("Paired bootstrap over seeds and cells", header, rows)


def effects(document: Json) -> Table:
    """Effect sizes, and the smallest effect that this number of seeds can show."""
    rows = [
        (
            _contrast(c),
            number(c["effect_size"]["d_z"], 2),
            interval(c["effect_size"]["ci95"], 2),
            number(c["detectable"]["d_z"], 2),
            number(c["detectable"]["difference"]),
        )
        for c in document["comparisons"]
    ]
    header = ("arm - reference", "d_z", "95% interval", "detectable d_z", "detectable difference")
    return Table("Effect size and smallest detectable difference", header, rows)


def _arm_row(arm: Json) -> tuple[str, ...]:
    lose = arm["seeds_that_lose"]
    return (
        _arm(arm),
        number(arm["inj"]["mean"]),
        shown_interval(arm["inj"]),
        number(arm["non_injective"]["mean"]),
        number(arm["laundering_gap"]),
        "-" if lose is None else f"{lose} of {arm['n_seeds']}",
    )


def _arm(arm: Json) -> str:
    return f"{arm['run']}:{arm['assignment']}"


def _contrast(comparison: Json) -> str:
    """`2:learned - 1:learned`."""
    return f"{_arm(comparison['other'])} - {_arm(comparison['reference'])}"
