"""The frame of a self-contained page: its style, its one small script, and a policy that lets nothing else in."""

import base64
import hashlib
from html import escape

STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --faint: #5c5c5c; --line: #d8d8d8; --pale: #f4f6f8; --blue: #0072b2; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
p, li, figcaption, summary, dd { overflow-wrap: anywhere; }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9rem; margin: .8rem 0; }
.label { display: inline-block; background: #e69f00; color: #000; border-radius: 3px; padding: 0 .5rem;
  font-size: 1rem; }
.label.full { background: #e3f1ea; }
.note { background: #fff4d6; border-left: 4px solid #e69f00; padding: .5rem .8rem; margin: .5rem 0; }
.faint, figcaption { color: var(--faint); font-size: .9rem; max-width: 60rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: .8rem; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .9rem; background: var(--pale);
  min-width: 0; }
.tile h3 { margin: 0; }
.tile .score { font-size: 1.7rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.score small { font-size: 1rem; font-weight: 400; color: var(--faint); }
.tile dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .8rem; margin: .3rem 0 0; font-size: .9rem; }
.tile dt { color: var(--faint); } .tile dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: .4rem 0 1rem; }
.wide:focus-visible, button:focus-visible, summary:focus-visible { outline: 2px solid var(--blue); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { vertical-align: bottom; background: #fff; }
.text { text-align: left; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: #fff; }
.sortable tbody tr:hover td { background: var(--pale); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button::after { content: "\\2195"; color: #999; padding-left: .25em; }
th[aria-sort=ascending] button::after { content: "\\25B2"; color: var(--ink); }
th[aria-sort=descending] button::after { content: "\\25BC"; color: var(--ink); }
figure { margin: 0 0 1.5rem; }
figure .wide img { display: block; max-width: max(100%, 34rem); height: auto; }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
pre { background: var(--pale); padding: .8rem; overflow-x: auto; font-size: .8rem; margin: .3rem 0; }
.card { border-top: 1px solid var(--line); padding: .2rem 0 .8rem; }
.row { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: flex-start; }
.row figure, .reading figure { margin: 0; }
.row figcaption, .reading figcaption { font-size: .8rem; max-width: 8rem; }
.row img, .reading img { display: block; width: 8rem; height: auto; image-rendering: pixelated;
  border: 1px solid var(--line); }
.readings { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1rem;
  margin-top: .8rem; }
.reading { display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-content: flex-start; min-width: 0;
  border-left: 3px solid var(--line); padding-left: .8rem; }
.reading > p { flex-basis: 100%; margin: 0; font-size: .9rem; }
.reading .wide { margin: 0; }
.energy th, .energy td { position: static; padding: .2rem .3rem; border: 0; font-size: .8rem; text-align: right;
  background: none; }
.right { color: #00684d; font-weight: 600; } .wrong { color: #a33c00; font-weight: 600; }
.energy td.true { outline: 2px solid #000; outline-offset: -2px; }
.energy td.read { font-weight: 700; }
.swatch { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .8em; vertical-align: baseline; }
@media print { .wide { overflow: visible; } nav { display: none; } }
"""

SCRIPT = """
const missing = (text) => text === "" || text === "-" || text === "n/a";
const isNumber = (text) => missing(text) || /^[\\[(]?[-+]?\\.?\\d[-+\\d.,;e%()\\[\\]\\s\\u00b1]*$/.test(text);
const value = (text) => parseFloat(text.replace(/^[\\[(]/, ""));
const compare = (numbers, a, b) => numbers ? value(a) - value(b) : a.localeCompare(b);

function sortBy(header, column, body) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = Array.from(body.rows, (row) => [row.cells[column].textContent.trim(), row]);
  const numbers = rows.every(([text]) => isNumber(text));
  const order = descending ? -1 : 1;
  rows.sort(([a], [b]) => missing(a) - missing(b) || order * compare(numbers, a, b) || 0);
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header, column, table.tBodies[0]));
    header.append(button);
  });
}
"""


def page(title: str, body: str, style: str = "") -> str:
    """A page that needs no network and may not ask for any. `title` is text, `body` HTML, `style` adds rules."""
    style = STYLE + style
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{source_hash(style)}'; script-src '{source_hash(SCRIPT)}'"
    )
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}<script>{SCRIPT}</script></body></html>\n'


def source_hash(text: str) -> str:
    """How a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def image(data: bytes, kind: str, alt: str, css_class: str = "") -> str:
    """An image that the page carries in itself; `kind` is its MIME type, `alt` what it shows."""
    source = base64.b64encode(data).decode()
    named = f' class="{escape(css_class)}"' if css_class else ""
    return f'<img{named} alt="{escape(alt)}" src="data:{kind};base64,{source}">'


def details(title: str, body: str, is_open: bool = False) -> str:
    """Something long behind its title."""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>"
