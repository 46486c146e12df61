"""The frame of a self-contained page, with a policy that lets in nothing but its own style and script."""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from soopf_jax.report.page_script import SCRIPT
from soopf_jax.report.page_style import STYLE


def page(title: str, body: str, style: str = "") -> str:
    """A page that needs no network and is not allowed to use it.

    Args:
        title: Text, which is escaped.
        body: HTML.
        style: CSS rules that are added to STYLE.
    """
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
    """An image that is part of the page. `kind` is its MIME type, and `alt` says what it shows."""
    source = base64.b64encode(data).decode()
    named = f' class="{escape(css_class)}"' if css_class else ""
    return f'<img{named} alt="{escape(alt)}" src="data:{kind};base64,{source}">'


class Link(NamedTuple):
    """A place in a figure that leads somewhere."""

    x: float
    """The share of the figure's width that is left of it."""
    y: float
    """The share of the figure's height that is above it."""
    address: str
    text: str
    """What the place stands for."""


def figure(title: str, caption: str, svg: bytes, links: Sequence[Link] = ()) -> str:
    """A figure in a box that scrolls by itself where the page is narrow, with its title and its caption.

    Args:
        title: Text.
        caption: Text, empty where the text before several figures explains them all.
        svg: The drawing.
        links: Places in the drawing that can be clicked.
    """
    drawn = image(svg, "image/svg+xml", f"{title}. {caption}".strip())
    if links:
        drawn = f'<div class="drawn">{drawn}{overlay(links, *size_of(svg))}</div>'
    box = f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}">{drawn}</div>'
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{escape(title)}</h3>{box}{below}</figure>"


def overlay(links: Sequence[Link], width: float, height: float) -> str:
    """Links over a drawing of this size. The tab key passes them by: a page has the same links in a table."""
    places = "".join(
        f'<a href="{escape(link.address)}" tabindex="-1"><title>{escape(link.text)}</title>'
        f'<circle cx="{link.x * width:.1f}" cy="{link.y * height:.1f}" r="7"/></a>'
        for link in links
    )
    return f'<svg class="links" aria-hidden="true" viewBox="0 0 {width:g} {height:g}">{places}</svg>'


def size_of(svg: bytes) -> tuple[float, float]:
    """Width and height of a drawing, as its `viewBox` has them."""
    found = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if found is None:
        raise ValueError("the drawing has no viewBox")
    return float(found[1]), float(found[2])


def details(title: str, body: str, is_open: bool = False, css_class: str = "") -> str:
    """A title that unfolds the body. With the class `first-visit` the script closes it on later visits."""
    named = f' class="{escape(css_class)}"' if css_class else ""
    return f"<details{named}{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>"


def copyable(text: str) -> str:
    """A block of text with a button that copies it."""
    return f'<pre class="copy">{escape(text)}</pre>'
