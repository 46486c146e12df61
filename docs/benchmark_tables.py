"""The tables of the documentation that programs in benchmarks/ measure. docs/result_tables.py has the others."""

from benchmarks import bilinear_forms, precision, throughput
from docs.evidence import Command, Found, ResultTable, only
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import number


def measured(file: str, *words: str) -> Command:
    """A program of benchmarks/ that writes JSON."""
    return Command(words, file, ("--json", f"{{out}}/{file}"))


FORMS = measured("forms.json", "benchmarks.bilinear_forms")
PRECISION = measured("precision.json", "benchmarks.precision")
SPEED = measured("speed.json", "benchmarks.throughput", "--rounds", "3")
STUDY = measured(
    *("study.json", "benchmarks.study", "--rounds", "2", "--pairs", "256", "--rows", "12"),
    *("--dataset", "shapes3d-lite"),
)


def forms(found: Found) -> Table:
    """A row for every form of the bilinear carrier, its equation as code."""
    table = bilinear_forms.table(only(found))
    return table._replace(rows=[(f"`{equation}`", *scores) for equation, *scores in table.rows])


def speed(found: Found) -> Table:
    """The time of a fit-step by every method, for tokens of two sizes, and the ratios between methods."""
    document = only(found)
    parts = [document, document["small_tokens"]]
    rows = [
        (METHODS.get(name, name), *(number(part["ms_per_fit_step"][name]) for part in parts))
        for name in document["ms_per_fit_step"]
    ]
    rows.append(("the limit", *(number(part["floor_ms_per_fit_step"]) for part in parts)))
    for key, name in RATIOS.items():
        rows.append((f"{document['ours']}: {name}", *(f"{part[key]:.2f}" for part in parts)))
    header = ("N = {patches}, D = {channels}".format(**part["sizes"]) for part in parts)
    return Table("", ("ms per fit-step", *header), rows)


METHODS = {
    throughput.SEQUENTIAL: "PyTorch, one fit after the other",
    throughput.PRECOMPUTED: "the same with LN precomputed",
    throughput.BATCHED: "PyTorch, 45 fits batched by hand, our best layout",
}
"""Methods that the table calls by another name."""
RATIOS = {
    "ratio_to_floor": "times the limit",
    "speedup_vs_torch": "times as fast as PyTorch, one fit after the other",
    "speedup_vs_torch_precomputed": "times as fast as the same with LN precomputed",
    "speedup_vs_torch_batched": "times as fast as PyTorch, 45 fits batched by hand",
}
"""The ratios that `benchmarks.throughput` takes within each round, and what the table calls them."""


def study(found: Found) -> Table:
    """What a study costs beside its runs."""
    document = only(found)
    layers, runner = document["layers"], document["runner"]
    rows = [
        (
            f"Render, encode and store {layers['layers']} layers against one, {document['images']} images",
            f"{layers['all']:.1f} s against {layers['one']:.1f} s: {layers['ratio']:.2f} times",
        ),
        (
            f"Programs compiled in a study of {runner['rows']} layers",
            f"{runner['compiled_first']} for the first row, {runner['compiled_later']} for the others",
        ),
        (
            f"Planning, loading results, tables and page of these {runner['rows']} rows",
            f"{runner['overhead_per_row']:.2f} s per row",
        ),
        (
            "Memory of the process",
            f"at most {megabytes(runner['after_first'])} with the first row, and {megabytes(runner['after_all'])} "
            f"with all; {megabytes(runner['before'])} before the first",
        ),
        ("The table of a row, as the plan gives it", megabytes(runner["table"])),
    ]
    return Table("", ("what", "CPU time, or memory"), rows)


def megabytes(count: float) -> str:
    """`2,013 MB`."""
    return f"{count / 1e6:,.0f} MB"


TABLES = {
    "forms": ResultTable([FORMS], forms),
    "precision": ResultTable([PRECISION], lambda found: precision.table(only(found))),
    "speed": ResultTable([SPEED], speed),
    "study-cost": ResultTable([STUDY], study),
}
"""By name, as in docs/result_tables.py."""
