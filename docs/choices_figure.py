"""The figure of the sensitivity study: what every choice does to INJ, with its interval, by encoder."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from soopf_jax.experiments.options import Bench
from soopf_jax.paper import sensitivity
from soopf_jax.runtime import atomic
from soopf_jax.studies.rows import Obstacle
from soopf_jax.types import Json

NAME = "choices.png"
COLOURS = ("#0072b2", "#d55e00", "#009e73")


def draw(studies: Sequence[tuple[str, Bench]], found: Mapping[Bench, Json | Obstacle], folder: Path) -> None:
    """Write the figure, one panel for each assignment.

    Args:
        studies: The name of each encoder, and its run with all choices at their defaults.
        found: The results of all runs; a run that is missing has an Obstacle.
        folder: Where the figure goes.
    """
    by_encoder = {}
    for name, default in studies:
        missing = dict.fromkeys(sensitivity.study(default), Obstacle("not run"))
        effects = sensitivity.effects(default, missing | dict(found))
        by_encoder[name] = [effect for effect in effects if effect.difference is not None]
    labels = list(dict.fromkeys(_label(effect.choice) for effects in by_encoder.values() for effect in effects))
    height = 0.32 * len(labels) + 2
    figure, axes = plt.subplots(1, 2, figsize=(11, height), sharex=True, sharey=True, layout="constrained")
    for panel, arm in zip(axes, sensitivity.ARMS, strict=True):
        for number, (name, effects) in enumerate(by_encoder.items()):
            _draw_encoder(panel, [effect for effect in effects if effect.arm == arm], labels, number, name)
        panel.axvline(0, color="0.5", linewidth=0.8)
        panel.set(title=f"{arm} assignment", xlabel="change of INJ, with its 95 % interval")
        panel.grid(axis="x", color="0.9")
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    handles, names = axes[0].get_legend_handles_labels()
    title = "filled dots stand after Holm's correction"
    figure.legend(handles, names, title=title, ncols=len(names), loc="outside lower center")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110, format="png")
    plt.close(figure)
    atomic.write_bytes(folder / NAME, drawn.getvalue())


def _draw_encoder(
    panel: Axes, effects: Sequence[sensitivity.Effect], labels: Sequence[str], number: int, name: str
) -> None:
    """The effects on one encoder. A filled dot stands after Holm's correction."""
    colour = COLOURS[number]
    panel.plot([], [], "o", color=colour, label=name)
    for effect in effects:
        y = labels.index(_label(effect.choice)) + 0.22 * (number - 1)
        if effect.test["ci95"]:
            panel.plot(effect.test["ci95"], (y, y), color=colour, linewidth=1.2)
        stands = effect.p_holm is not None and effect.p_holm < 0.05
        panel.plot(effect.difference, y, "o", color=colour, markerfacecolor=colour if stands else "white", markersize=5)


def _label(choice: sensitivity.Choice) -> str:
    return f"{choice.name}: {choice.default} to {choice.value}"
