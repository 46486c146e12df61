"""A comparison of runs (`compare.schema.json`) as tables for the terminal and as a page."""

from collections.abc import Sequence
from html import escape

from soopf_jax import statistics
from soopf_jax.report import shell
from soopf_jax.report.naming import RunName
from soopf_jax.report.tables import Table, html, interval, number, signed
from soopf_jax.types import Json

_SCORES = {"inj": "INJ", "non_injective": "many-to-one accuracy"}


def all_tables(document: Json) -> list[Table]:
    """Runs first, then their scores, then what differs."""
    return [runs(document), arms(document), t_tests(document), bootstraps(document), effects(document)]


def page(document: Json) -> str:
    """A self-contained page; its tables sort."""
    title = f"Comparison of {_SCORES[document['score']]}"
    noted = "".join(f"<li>{escape(note)}</li>" for note in notes(document))
    body = "".join(map(html, all_tables(document)))
    return shell.page(title, f"<h1>{escape(title)}</h1>{body}<h2>Notes</h2><ul>{noted}</ul>")


def notes(document: Json) -> list[str]:
    """What a reader must know, first of all what is particular to these runs."""
    undefined = [f"{_contrast(c)}: {c['undefined']}" for c in document["comparisons"] if c["undefined"]]
    tests = [test for c in document["comparisons"] for test in (c["paired_t"], c["bootstrap"])]
    n_tests = sum(test["p"] is not None for test in tests)
    return [
        *document["notes"],
        *undefined,
        f"differences are in {_SCORES[document['score']]}; p (Holm) is corrected for the {n_tests} tests shown here",
        f"bootstrap: {statistics.DRAWS:,} draws of seeds, then cells; too sure of itself with few seeds",
        "d_z: mean difference by the SD of the seeds' differences, with its noncentral-t interval",
        f"detectable: found by the t-test at the {statistics.LEVEL:.0%} level with probability {statistics.POWER:.0%}",
    ]


def runs(document: Json) -> Table:
    """What was run, and where it lies."""
    columns = (*RunName._fields, "folder")
    rows = [(str(i), *(run[name] for name in columns)) for i, run in enumerate(document["runs"], 1)]
    return Table("Runs (the first is the reference)", ("run", *columns), rows)


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
            interval(c["paired_t"]["ci95"]),
            number(c["paired_t"]["t"], 2),
            _p_value(c["paired_t"]["p"]),
            _p_value(c["paired_t"]["p_holm"]),
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
            interval(c["bootstrap"]["ci95"]),
            _p_value(c["bootstrap"]["p"]),
            _p_value(c["bootstrap"]["p_holm"]),
        )
        for c in document["comparisons"]
    ]
    header = ("arm - reference", "seeds x cells", "difference", "95% interval", "p", "p (Holm)")
    return Table("Paired bootstrap over seeds and cells", header, rows)


def effects(document: Json) -> Table:
    """Effect sizes, and what so many seeds can show."""
    rows = [
        (
            _contrast(c),
            number(c["effect_size"]["d_z"], 2),
            _two_digits(c["effect_size"]["ci95"]),
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
        interval(arm["inj"]["ci95"]),
        number(arm["non_injective"]["mean"]),
        number(arm["laundering_gap"]),
        "-" if lose is None else f"{lose} of {arm['n_seeds']}",
    )


def _arm(arm: Json) -> str:
    return f"{arm['run']}:{arm['assignment']}"


def _contrast(comparison: Json) -> str:
    """`2:learned - 1:learned`."""
    return f"{_arm(comparison['other'])} - {_arm(comparison['reference'])}"


def _two_digits(ci95: Sequence[float] | None) -> str:
    return f"[{ci95[0]:.2f}, {ci95[1]:.2f}]" if ci95 else "-"


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.2g}"
