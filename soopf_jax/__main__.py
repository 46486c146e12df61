"""The command `soopf`, and `python -m soopf_jax`: one word chooses what to do, the rest are its options."""

import functools
import operator
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from typing import Annotated, Any, NamedTuple

from soopf_jax import plugins
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import cli


class Command(NamedTuple):
    """What a word of the command line starts."""

    module: str
    """A module with `main(args) -> exit code`. It is imported when its word is given."""
    summary: str
    options: str = ""
    """The address of its dataclass of options, for completion in a shell; empty if it has several."""


COMMANDS: Mapping[str, Command] = {
    "run": Command(
        "soopf_jax.bench", "train readouts and score them on held-out cells", "soopf_jax.experiments.options:Bench"
    ),
    "study": Command("soopf_jax.study", "run many encoders, layers and readouts as one study", "soopf_jax.study:Study"),
    "census": Command(
        "soopf_jax.census",
        "train under every grid of flat labels: where does the true one rank?",
        "soopf_jax.census:Options",
    ),
    "compare": Command("soopf_jax.compare", "compare finished runs by paired tests", "soopf_jax.compare:Compare"),
    "board": Command(
        "soopf_jax.leaderboard",
        "put every result below a folder into one table",
        "soopf_jax.leaderboard:Leaderboard",
    ),
    "reproduce": Command(
        "soopf_jax.reproduce",
        "run what the paper's tables need, and show ours beside the paper's",
        "soopf_jax.reproduce:Reproduce",
    ),
    "features": Command("soopf_jax.features.__main__", "list, build, verify, remove and share stored features"),
    "data": Command(
        "soopf_jax.substrates.__main__",
        "look at a data set, or fetch an original one",
        "soopf_jax.substrates.__main__:Look",
    ),
    "encoders": Command("soopf_jax.encoders.__main__", "list the encoders; encoders check NAME: are its tokens right?"),
    "doctor": Command(
        "soopf_jax.doctor", "say what is installed and at hand here, and what to do next", "soopf_jax.doctor:Doctor"
    ),
}
LISTS: Mapping[str, Mapping[str, str]] = {
    "encoders": plugins.ENCODERS,
    "readouts": plugins.READOUTS,
    "assignments": plugins.ASSIGNMENTS,
    "objectives": plugins.OBJECTIVES,
}
"""Words that list the names of one kind of plug-in."""
VERSION = ("version", "--version")
HELP = ("help", "--help", "-h")
COMPLETION, SHELLS = "completion", ("bash", "zsh", "tcsh")


def main(args: Sequence[str] | None = None) -> int:
    """Start what the first word names.

    Returns:
        The exit code: 0 done, 2 a user's mistake, 130 Ctrl-C.
    """
    words = list(sys.argv[1:] if args is None else args)
    word = words[0] if words else "help"
    alone = len(words) == 1
    if word in COMMANDS and not (alone and word in LISTS):
        modules: list[Any] = []  # imported within `cli.run`, where Ctrl-C ends with one line
        code = cli.run(lambda: modules.append(import_module(COMMANDS[word].module)))
        with cli.called_as(f"soopf {word}"):
            return code or int(modules[0].main(words[1:]))
    if word == COMPLETION:
        return cli.run(lambda: complete(words[1:]))
    return cli.run(lambda: answer(word))


def complete(shells: Sequence[str]) -> None:
    """Print the script that lets a shell complete commands and options.

    Raises:
        UserError: No shell is named, or one that is not supported.
    """
    import tyro

    if len(shells) != 1 or shells[0] not in SHELLS:
        raise UserError(f"soopf {COMPLETION} takes the name of a shell: {', '.join(SHELLS)}")
    subcommand = tyro.conf.subcommand
    kinds = [
        Annotated[plugins.load(command.options), subcommand(word)]
        for word, command in COMMANDS.items()
        if command.options
    ]
    tyro.cli(functools.reduce(operator.or_, kinds), prog="soopf", args=["--tyro-print-completion", shells[0]])  # type: ignore[call-overload]


def answer(word: str) -> None:
    """Print what a word asks for that starts nothing.

    Raises:
        UserError: There is no such word.
    """
    if word in HELP:
        print(overview())
    elif word in VERSION:
        print(f"soopf_jax {metadata.version('soopf_jax')}")
    elif word in LISTS:
        print("\n".join(plugins.offered(LISTS[word])))
    elif word.startswith("-"):
        raise UserError(f"{word} comes before any command; see soopf --help")
    else:
        raise unknown_name("command", word, {*COMMANDS, *LISTS, COMPLETION, VERSION[0]})


def overview() -> str:
    """What `soopf --help` prints."""
    rows = {word: command.summary for word, command in COMMANDS.items()}
    rows |= {word: f"list the {word} that have a name" for word in LISTS if word not in COMMANDS}
    rows[COMPLETION] = "print the script that lets your shell complete commands: completion bash"
    rows["version"] = "print the version"
    lines = [f"  {word:<12} {summary}" for word, summary in rows.items()]
    return "\n".join(
        [
            "usage: soopf COMMAND [OPTIONS]",
            "",
            "Do frozen vision encoders bind what changed to where it changed?",
            "",
            *lines,
            "",
            "For a first look: soopf run --quick. The options of a command: soopf COMMAND --help.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
