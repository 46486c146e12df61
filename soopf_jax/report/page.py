"""`report.html`: one self-contained file per run. The finding and all warnings come first, then the panels."""

from collections.abc import Mapping
from html import escape

from soopf_jax.experiments.naming import with_caveat, without_folder
from soopf_jax.experiments.results import Result
from soopf_jax.report import cards, figures, html_page, panels, summary
from soopf_jax.report.examples import Examples
from soopf_jax.report.figures import Plot
from soopf_jax.report.findings import finding
from soopf_jax.report.subject import Subject
from soopf_jax.runtime.hashing import slug
from soopf_jax.types import Json


def pages(result: Result, examples: Examples | None = None) -> dict[str, bytes]:
    """The report and its figures, by their path in the result folder."""
    plots = figures.plots_of(result, examples)
    drawn = {
        f"figures/{name}.{kind}": data for name, plot in plots.items() for kind, data in figures.render(plot).items()
    }
    return {"report.html": report(result, plots, drawn, examples).encode(), **drawn}


def report(
    result: Result, plots: Mapping[str, Plot], drawn: Mapping[str, bytes], examples: Examples | None = None
) -> str:
    """The whole page; `drawn` holds the figures' bytes by path."""
    subject = Subject(result, plots, drawn, examples)
    contents = {title: draw(subject) for title, draw in panels.PANELS.items()}
    shown = {title: content for title, content in contents.items() if content}
    name, _ = name_and_size(result.document)
    body = [
        header(result.document, finding(result.document, result.fits)),
        "<nav>" + "".join(f'<a href="#{anchor(title)}">{title}</a>' for title in shown) + "</nav>",
        *(f'<section id="{anchor(title)}"><h2>{title}</h2>{content}</section>' for title, content in shown.items()),
    ]
    style = cards.style(subject.grid.n_supports) if examples else ""
    return html_page.page(f"{name} ({result.document['protocol']} protocol)", "".join(body), style)


def anchor(title: str) -> str:
    """The name that a link to a section uses."""
    return slug(title.lower())


def header(document: Json, found: str = "") -> str:
    """What was run, what was found, how it differs from the paper's protocol, and all warnings."""
    protocol = document["protocol"]
    name, size = name_and_size(document)
    is_full = protocol == "full"
    label = ' <span class="label">full protocol</span>' if is_full else ""
    notes = [] if is_full else [summary.protocol_note(document["config"], protocol)]
    notes += document["warnings"]
    return (
        f"<header><h1>{escape(name)}{label}</h1>"
        + (f'<p class="finding">{escape(found)}</p>' if found else "")
        + "".join(f'<p class="note">{escape(note[:1].upper() + note[1:])}.</p>' for note in notes)
        + f'<p class="faint">{escape(size)}<br>{escape(facts(document))}</p></header>'
    )


def name_and_size(document: Json) -> tuple[str, str]:
    """What was run, and how many fits of how many steps. Folders of this machine are left out of names."""
    config = document["config"]
    name, _, size = summary.title(document).rpartition(": ")
    for full in (str(config.get(part, "")) for part in ("dataset", "encoder")):
        name = name.replace(full, without_folder(full)) if full else name
    return name, size.removesuffix(f" ({summary.protocol_note(config, document['protocol'])})")


def facts(document: Json) -> str:
    """The readout, the size of the data, the version and the device, in one line."""
    arm, origin = document["arms"][0], document["provenance"]
    parts = [
        f"readout {with_caveat(arm['readout'], arm['readout'])}, objective {arm['objective']}",
        f"{origin['pairs']:,} pairs, {origin['patches']} patches x {origin['channels']:,} channels",
        f"soopf_jax {origin['environment']['packages']['soopf_jax']} on {origin['environment']['device']}",
    ]
    return "; ".join(parts)
