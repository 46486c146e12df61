"""A hook of mkdocs: the pictures in assets/ become part of the site.

The pages link to `../assets/NAME.png`, as they must where they are read in the repository. The site has no folder above
its pages, so the pictures are put into `pictures/` there, and the links follow.
"""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ASSETS = Path(__file__).parent.parent / "assets"


def on_files(files: Files, config: Any) -> Files:
    """Add every picture."""
    for path in sorted(ASSETS.glob("*.png")):
        files.append(File.generated(config, f"pictures/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Point the links at the pictures' place in the site."""
    del context
    return markdown.replace("](../assets/", "](pictures/")
