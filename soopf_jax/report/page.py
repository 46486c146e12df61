"""`report.html`: one self-contained file per run; no scripts from elsewhere, every name escaped."""

import base64
import json
from html import escape

from soopf_jax.report import figures, tables
from soopf_jax.results import Result

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.note { background: #fff4d6; border-left: 4px solid #e69f00; padding: .5rem .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; height: auto; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: .8rem; }
"""


def pages(result: Result) -> dict[str, bytes]:
    """The report and its figures, by their path in the result folder."""
    files: dict[str, bytes] = {}
    for name, draw in figures.figures_of(result.document).items():
        for kind in ("svg", "png"):
            files[f"figures/{name}.{kind}"] = figures.render(draw(result.document), kind)
    return {"report.html": report(result, files).encode(), **files}


def report(result: Result, files: dict[str, bytes]) -> str:
    """Summary first, then figures, details, configuration and provenance."""
    document = result.document
    title = tables.title(document)
    notes = "".join(f'<p class="note">{escape(warning)}</p>' for warning in document["warnings"])
    if document["protocol"] != "full":
        note = tables.protocol_note(document["config"], document["protocol"])
        notes = f'<p class="note">{escape(note.capitalize())}.</p>{notes}'
    parts = [
        f"<h1>{escape(title)}</h1>{notes}",
        _wide(tables.html(tables.summary(document))),
        *(_image(name, files[f"figures/{name}.png"]) for name in figures.figures_of(document)),
        *(_wide(tables.html(table)) for table in tables.details(document)),
        f"<h2>Configuration</h2><pre>{escape(json.dumps(document['config'], indent=1))}</pre>",
        f"<h2>Provenance</h2><pre>{escape(json.dumps(document['provenance'], indent=1))}</pre>",
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _wide(table: str) -> str:
    return f'<div class="wide">{table}</div>'


def _image(name: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    title = escape(name.replace("_", " ").capitalize())
    return f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{data}">'
