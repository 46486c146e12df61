"""Tables as text: aligned whatever the names are, and as wide as the terminal allows."""

import pytest

from soopf_jax.experiments.naming import encoder_of
from soopf_jax.report import summary, tables
from soopf_jax.report.tables import Table
from soopf_jax.runtime.text import count, shortened
from soopf_jax.scoring import metrics
from tests.report_result import dealt_result

TABLE = Table("Scores", ("arm", "INJ", "many-to-one"), [("factorial", "0.617", "0.648"), ("q", "0.5", "-")])


def test_columns_are_as_wide_as_they_need_to_be():
    assert tables.text(TABLE).splitlines() == [
        "Scores",
        "arm          INJ  many-to-one",
        "factorial  0.617        0.648",
        "q            0.5            -",
    ]


@pytest.mark.parametrize(("width", "columns"), [(100, 3), (29, 3), (28, 2), (16, 2), (15, 1), (3, 1)])
def test_the_last_columns_give_way_to_a_narrow_terminal(width, columns):
    _, header, *rest = tables.text(TABLE, width).splitlines()
    assert header.split() == ["arm", "INJ", "many-to-one"][:columns]
    left_out = ["", "INJ, many-to-one", "many-to-one"][columns % 3]
    assert rest[2:] == ([f"(not shown: {left_out}; --wide shows all)"] if left_out else [])


def test_a_long_name_does_not_break_the_alignment():
    name = "my_package.my_module:MY_ASSIGNMENT"
    table = TABLE._replace(rows=[*TABLE.rows, (name, "0.9", "0.9")])
    for width in (None, 80):
        _, header, *rows = tables.text(table, width).splitlines()
        ends = {line.index(value) + len(value) for line, value in zip(rows, ("0.617", "0.5", "0.9"), strict=True)}
        assert ends == {header.index("INJ") + 3}
    assert name in tables.text(table)
    assert "my_packa...e:MY_ASSIGNMENT" in tables.text(table, 80)


def test_a_run_fits_80_columns_and_keeps_its_main_scores():
    document = dealt_result(("factorial", "my_package.my_module:MY_ASSIGNMENT")).document
    _, scores, *rest = summary.text(document, 80).splitlines()
    for name in ("INJ", "95% interval", "many-to-one", "gap"):
        assert name in scores
    assert all(len(line) <= 80 for line in [scores, *rest] if not line.startswith(("(not shown", "warning")))
    assert "collapse" not in scores
    assert "collapse" in summary.text(document)


def test_one_thing_is_singular():
    assert [count(n, "restart") for n in (0, 1, 2)] == ["0 restarts", "1 restart", "2 restarts"]


def test_a_name_is_shortened_in_its_middle():
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abc...hijk"


def test_the_layer_stands_beside_the_encoder():
    size = {"protocol": {"seeds": 3, "restarts": 1, "steps": 500}}
    config = {"dataset": "mujoco", "encoder": "dinov3", "layer": 18} | size
    assert encoder_of(config) == "dinov3 layer 18"
    assert summary.headline(config, "quick", 9).startswith(
        "mujoco, dinov3 layer 18: 3 seeds x 9 cells x 1 restart, 500"
    )


def test_a_score_has_one_name():
    """What people read is in one table; no column of a run's table has another name for a score."""
    assert metrics.NAMES["inj"] == "INJ"
    assert metrics.NAMES["non_injective"] == "many-to-one"
    document = dealt_result(("factorial", "learned")).document
    (tests,) = [table for table in summary.details(document) if "t-tests" in table.title]
    assert {row[2] for row in tests.rows} <= {"INJ", "many-to-one"}
    assert not any("injective" in cell for row in tests.rows for cell in row)
