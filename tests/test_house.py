"""The rules of the house that no linter checks: functions that fit a screen, and prose that names files that exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "soopf_jax"
MOST_LINES, MOST_PARAMETERS = 60, 8
ELSEWHERE = re.compile(r"DESIGN\.md|\.\./shared")
"""Notes and folders that are not part of the repository."""
FILE = re.compile(r"(?<![\w/.:<>{}*-])[\w.-]+(?:/[\w.-]+)*\.(?:py|md|toml|ipynb|lock|tex)\b")
"""What reads like the path of a source file."""
READ_BY_PEOPLE = [
    *PACKAGE.rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "docs").rglob("*.py"),
    *(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)),
    *(ROOT / "docs").rglob("*.md"),
    *ROOT.glob("*.md"),
]
HOMES = (ROOT, PACKAGE, ROOT / "tests", ROOT / "examples")
"""A path may be given from any of these, or from the folder of the file that names it."""
WRITTEN_BY_READERS = {
    "my_parts.py",
    "my_study.toml",
    "soopf_jax/encoders/moments.py",
    "soopf_jax/readouts/positional.py",
    "soopf_jax/report/times.py",
}
"""Files that a reader of the documentation makes."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def n_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    return len([*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))])


def too_large(source: str) -> list[str]:
    """The functions that are longer, or take more parameters, than is allowed."""
    return [
        function.name
        for function in functions(ast.parse(source))
        if function.end_lineno - function.lineno + 1 > MOST_LINES or n_parameters(function) > MOST_PARAMETERS
    ]


def prose(path: Path) -> str:
    """A document's text; a module's comments and docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    strings = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*comments, *strings])


def lost(text: str, folder: Path) -> list[str]:
    """What a text names and the repository does not have."""
    named = [name for name in FILE.findall(text) if name not in WRITTEN_BY_READERS]
    return [
        *ELSEWHERE.findall(text),
        *(name for name in named if not any((home / name).exists() for home in (*HOMES, folder))),
    ]


def test_functions_fit_a_screen_and_take_few_parameters():
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in PACKAGE.rglob("*.py")
        for name in too_large(path.read_text())
    }
    assert found == set()


def test_the_measure_finds_what_it_looks_for():
    assert too_large("def f(a, b, /, c, d, *e, g, h, i): ...") == []
    assert too_large("def f(a, b, /, c, d, *e, g, h, i, **j): ...") == ["f"]
    assert too_large("def f():\n" + 59 * "    pass\n") == []
    assert too_large("def f():\n" + 60 * "    pass\n") == ["f"]


@pytest.mark.parametrize("path", READ_BY_PEOPLE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_names_only_what_the_repository_has(path):
    assert lost(prose(path), path.parent) == []


@pytest.mark.parametrize("text", ["see DESIGN.md", "as in ../shared/x", "`soopf_jax/no_such.py`", "no_such.md says"])
def test_the_search_finds_what_it_looks_for(text):
    assert lost(text, ROOT)
    assert not lost("`soopf_jax/grid.py`, test_house.py, https://x.org/no_such.py and FOLDER/<name>.py", ROOT)
