"""Which rows of a study are compared with one another, what they are called, and where they stand in a layer profile.

In: the outcomes of a study. Out: panels. A panel has the rows of one data set and one assignment; their seeds are
paired. The rows of a panel that differ only in the layer of their encoder form a series, which is a line of a profile.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from soopf_jax.experiments.naming import without_folder
from soopf_jax.runtime.text import number, printable
from soopf_jax.studies.outcome import Outcome

AFTER_LAST_BLOCK = 1.08
"""Where a profile shows the encoder's output, which comes after the last block and the final norm."""


class Row(NamedTuple):
    """A row of a study with its names."""

    outcome: Outcome
    series: str
    """`random-vit-s`; with readout, objective or protocol where they vary."""
    colour: int
    """The number of the series in the whole study."""
    layered: bool
    """Whether the study reads hidden layers of this series."""

    @property
    def layer(self) -> str:
        """`layer 6`; `last` for the encoder's output."""
        return "last" if self.outcome.layer is None else f"layer {self.outcome.layer}"

    @property
    def name(self) -> str:
        """`random-vit-s, layer 6`; without a layer where the series has only one."""
        return f"{self.series}, {self.layer}" if self.layered else self.series

    @property
    def place(self) -> float:
        """The place of the row on the axis of relative depth."""
        return AFTER_LAST_BLOCK if self.outcome.layer is None else self.outcome.depth

    @property
    def about(self) -> str:
        """What a pointer on the row is told."""
        return f"{self.name}, {printable(self.outcome.assignment)}: INJ {number(self.outcome.arm['inj']['mean'])}"


class Panel(NamedTuple):
    """Rows that may be compared."""

    data: str
    """The data set; with grid, pairs or seeds where one data set has several."""
    assignment: str
    rows: tuple[Row, ...]
    """In the order of the study, and of depth within a series."""

    @property
    def title(self) -> str:
        """`shapes3d-lite, learned assignment`."""
        return f"{self.data}, {self.assignment} assignment"

    @property
    def series(self) -> dict[str, list[Row]]:
        """The rows of every series, in the order of their depth."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.series, []).append(row)
        return found

    @property
    def complete(self) -> list[Row]:
        """The rows whose INJ is defined in every seed."""
        return [row for row in self.rows if row.outcome.arm["inj"]["mean"] is not None]


def panels(found: Sequence[Outcome]) -> list[Panel]:
    """All panels. Of equal arms, which two runs can have, the first one counts."""
    data_names, series_names = _names(map(_data, found)), _names(map(_series, found))
    colours = {name: index for index, name in enumerate(dict.fromkeys(series_names.values()))}
    layered = {_series(outcome) for outcome in found if outcome.layer is not None}
    groups: dict[tuple[str, str], dict[tuple[str, int | None], Row]] = {}
    for outcome in found:
        series = series_names[_series(outcome)]
        row = Row(outcome, series, colours[series], _series(outcome) in layered)
        group = groups.setdefault((data_names[_data(outcome)], printable(outcome.assignment)), {})
        group.setdefault((series, outcome.layer), row)
    return [
        Panel(*key, tuple(sorted(group.values(), key=lambda row: (row.colour, row.place))))
        for key, group in groups.items()
    ]


def by_data(all_panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    """The panels of every data set."""
    found: dict[str, list[Panel]] = {}
    for panel in all_panels:
        found.setdefault(panel.data, []).append(panel)
    return found


def by_assignment(all_panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    """The panels of every assignment."""
    found: dict[str, list[Panel]] = {}
    for panel in all_panels:
        found.setdefault(panel.assignment, []).append(panel)
    return found


# ----------------------------------------------------------------------------------- which layer stands for a series


def output_row(rows: Sequence[Row]) -> Row:
    """The encoder's output, or the deepest layer where the study does not read the output."""
    return rows[-1]


def selected_row(rows: Sequence[Row]) -> Row:
    """The layer with the best validation accuracy; the first one on ties. INJ plays no part in the choice."""
    return max(rows, key=lambda row: -1.0 if row.outcome.arm["validation"] is None else row.outcome.arm["validation"])


# ----------------------------------------------------------------------------------------------------------- names


def _data(outcome: Outcome) -> tuple[str, ...]:
    """What the rows of a panel share: seeds are paired only where these agree."""
    name, seeds = outcome.name, len(outcome.inj)
    return name.substrate, f"{name.grid} grid", f"{name.pairs} pairs", f"{seeds} seed{'s' * (seeds != 1)}"


def _series(outcome: Outcome) -> tuple[str, ...]:
    """What the rows of a series share."""
    encoder = outcome.name.encoder
    if outcome.layer is not None:
        encoder = encoder.replace(f" layer {outcome.layer}", "", 1)
    return encoder, outcome.readout, outcome.objective, outcome.protocol


def _names(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for every key: its first part, and the other parts in which keys with this first part differ.

    Folders of this machine are left out of the first part, unless two keys then have the same name.
    """
    every = list(dict.fromkeys(keys))
    short = Counter(without_folder(first) for first in {key[0] for key in every})
    found = {}
    for key in every:
        alike = [other for other in every if other[0] == key[0]]
        differing = [part for part, others in zip(key, zip(*alike, strict=True), strict=True) if len(set(others)) > 1]
        first = without_folder(key[0])
        found[key] = printable(", ".join([first if short[first] == 1 else key[0], *differing]))
    return found
