"""The files that come with the package: the MuJoCo scene and the paper's numbers."""

from pathlib import Path


def asset(name: str) -> Path:
    """The path of a file in `assets/`. An installed package holds this folder; in a checkout it is next to it."""
    package = Path(__file__).parents[1]
    inside, beside = (folder / "assets" / name for folder in (package, package.parent))
    return inside if inside.exists() else beside
