"""The style sheet of every page: light or dark as the reader's system asks, and usable on a narrow screen."""

from soopf_jax.runtime.palette import ARM_COLOURS

_LIGHT = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #5c5c5c; --line: #d8d8d8; --pale: #f4f6f8;
  --link: #0064a0; --note: #fff4d6; --note-line: #8a6d00; --full: #e8e8e8; --wrong: #b3261e; --arrow: #8a8a8a; }
"""
_DARK = """
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e8e8e8; --faint: #aab0b6; --line: #3c434a; --pale: #20252b; --link: #7cc4f5;
    --note: #352d12; --note-line: #d6b545; --full: #343a41; --wrong: #ff9a90; --arrow: #8a8a8a; }
}
"""
_PAGE = """
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem;
  margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
p, li, figcaption, summary, dd { overflow-wrap: anywhere; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9rem; margin: .8rem 0; }
.finding { font-size: 1.15rem; margin: .5rem 0; max-width: 62rem; }
.label { display: inline-block; background: var(--full); border-radius: 3px; padding: 0 .5rem; font-size: 1rem; }
.note { background: var(--note); border-left: 4px solid var(--note-line); padding: .5rem .8rem; margin: .5rem 0; }
.faint, figcaption { color: var(--faint); font-size: .9rem; max-width: 60rem; }
dl.terms { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .3rem 0; }
.terms dt { color: var(--ink); }
.terms dd { margin: 0; }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
button { font: inherit; color: inherit; }
input[type=search] { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--faint);
  border-radius: 4px; padding: .3rem .6rem; width: min(100%, 26rem); }
::placeholder { color: var(--faint); opacity: 1; }
pre { background: var(--pale); padding: .8rem; overflow-x: auto; font-size: .8rem; margin: .3rem 0; }
pre.copy { white-space: pre-wrap; overflow-wrap: anywhere; }
.copy-button { font-size: .8rem; padding: .1rem .7rem; background: var(--pale); border: 1px solid var(--faint);
  border-radius: 4px; cursor: pointer; }
:is(.wide, button, summary, input, a):focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
"""
_TILES = """
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: .8rem; }
.tile { border: 1px solid var(--line); border-top: 4px solid var(--arm, var(--line)); border-radius: 6px;
  padding: .6rem .9rem; background: var(--pale); min-width: 0; }
.tile h3 { margin: 0; }
.tile .score { font-size: 1.7rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.score small { font-size: 1rem; font-weight: 400; color: var(--faint); }
.tile dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .8rem; margin: .3rem 0 0; font-size: .9rem; }
.tile dt { color: var(--faint); }
.tile dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
"""
_TABLES = """
.wide { overflow-x: auto; margin: .4rem 0 1rem; }
.wide.more { mask-image: linear-gradient(to left, transparent, #000 3rem); }
.wide.scrolls::before { content: "scroll sideways \\2194"; position: sticky; left: 0; display: inline-block;
  font-size: .8rem; color: var(--faint); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; }
.text { text-align: left; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--paper); }
.sortable tbody tr:hover td { background: var(--pale); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button::after { content: "\\2195"; color: var(--arrow); padding-left: .25em; }
th[aria-sort=ascending] button::after { content: "\\25B2"; color: var(--ink); }
th[aria-sort=descending] button::after { content: "\\25BC"; color: var(--ink); }
@media (max-width: 40rem) {
  th, td { padding: .25rem .45rem; }
  td:first-child, th:first-child { white-space: normal; overflow-wrap: break-word; }
  dl.terms { display: block; }
}
"""
_FIGURES = """
figure { margin: 0 0 1.5rem; }
figure .wide img { display: block; max-width: max(100%, 34rem); height: auto; background: #fff; border-radius: 4px; }
.drawn { position: relative; width: fit-content; min-width: 34rem; }
figure .drawn img { max-width: 100%; }
.links { position: absolute; inset: 0; width: 100%; height: 100%; }
.links circle { fill: transparent; }
.links a:hover circle { stroke: #1a1a1a; stroke-width: 1.5; }
.card { border-top: 1px solid var(--line); padding: .2rem 0 .8rem; }
.row { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: flex-start; }
.row figure, .reading figure { margin: 0; }
.row figcaption, .reading figcaption { font-size: .8rem; max-width: 8rem; }
.row img, .reading img { display: block; width: 8rem; height: auto; image-rendering: pixelated;
  border: 1px solid var(--line); }
.readings { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1rem;
  margin-top: .8rem; }
.reading { display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-content: flex-start; min-width: 0;
  border-left: 4px solid var(--arm, var(--line)); padding-left: .8rem; }
.reading > p { flex-basis: 100%; margin: 0; font-size: .9rem; }
.reading .wide { margin: 0; }
.right, .wrong { font-weight: 600; }
.wrong { color: var(--wrong); }
.energy th, .energy td { position: static; padding: .2rem .3rem; border: 0; font-size: .8rem; text-align: right;
  background: none; }
.energy tbody td { color: #1a1a1a; }
.energy td.true { outline: 2px solid #000; outline-offset: -2px; }
.energy td.read { font-weight: 700; }
.swatch { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .8em; vertical-align: baseline; }
@media print { .wide { overflow: visible; mask-image: none; } nav { display: none; } }
"""
_ARMS = "".join(f".arm{index} {{ --arm: {colour}; }}\n" for index, colour in enumerate(ARM_COLOURS))

STYLE = _LIGHT + _DARK + _PAGE + _TILES + _TABLES + _FIGURES + _ARMS
"""The rules of all pages. Whatever belongs to an arm has the class `arm0`, `arm1`, ... and with it the colour that the
arm has in the figures."""


def arm_class(index: int) -> str:
    """The class that gives an element the colour of an arm."""
    return f"arm{index % len(ARM_COLOURS)}"
