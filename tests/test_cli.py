"""What every command line promises: exit codes, and one line for whatever goes wrong."""

import errno
import io
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from soopf_jax.__main__ import main as soopf
from soopf_jax.errors import UserError, unknown_name
from soopf_jax.runtime import cli


@dataclass(frozen=True)
class Options:
    """Some options."""

    seeds: int = 10
    """How many."""
    quick: bool = False
    """A first look."""


def raising(error):
    def program():
        raise error

    return program


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("no such\n thing; look again"), 2, "error: no such thing; look again"),
        (KeyboardInterrupt(), 130, "stopped"),
        (
            OSError(errno.ENOSPC, "No space left on device", "x.npz"),
            2,
            "error: No space left on device (x.npz); fix that and run the same command again",
        ),
    ],
)
def test_an_end_becomes_an_exit_code_and_one_line(error, code, line, capsys):
    assert cli.run(raising(error), interrupted="stopped") == code
    assert capsys.readouterr().err == f"{line}\n"


def test_success_is_silent(capsys):
    assert cli.run(lambda: None) == 0
    assert capsys.readouterr().err == ""


def test_defects_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        cli.run(lambda: 1 / 0)


def test_a_reader_that_leaves_early_gets_no_traceback():
    printing = "lambda: [print('line') for _ in range(99999)]"
    program = f"import sys; from soopf_jax.runtime import cli; sys.exit(cli.run({printing}))"
    command = f'{sys.executable} -c "{program}" | head -1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("line\n", "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--sedes", "3"], "unknown option --sedes: did you mean --seeds? (see python -m"),
        (["--seeds", "x"], "--seeds"),
        (["--seeds"], "--seeds"),
        (["what"], "what"),
    ],
)
def test_a_bad_command_line_is_one_line(args, said):
    with pytest.raises(UserError) as caught:
        cli.parse(Options, "soopf_jax.bench", args)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not set("│╭╰─") & set(str(caught.value))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["board"], "FOLDER is missing: The folder that holds result folders, at any depth. (see soopf board --help)"),
        (["board", "a", "b"], "unexpected 'b': a value follows the option that it belongs to (see soopf board --help)"),
        (["features", "export", "x"], "--to is missing: The folder to write. (see soopf features --help)"),
        (["features"], "soopf features needs one of list, build, verify, remove, export, import"),
        (["features", "lst"], "unknown command 'lst': did you mean 'list'? choose from build, export, import, list,"),
    ],
)
def test_what_is_missing_or_too_much_is_named_whatever_the_terminal_can_show(
    words, said, encoding, capsys, monkeypatch
):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert soopf(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_values_and_flags_are_read_over_the_defaults():
    assert cli.parse(Options, "p", ["--quick"], Options(seeds=3)) == Options(3, True)
    assert cli.parse(Options, "p", ["--seeds", "4", "--no-quick"]) == Options(4, False)


def test_the_nearest_name_is_offered_only_where_there_is_one():
    assert "did you mean 'pixels'?" in str(unknown_name("encoder", "pixel", ["pixels", "dinov3"]))
    assert "did you mean" not in str(unknown_name("encoder", "zzzz", ["pixels", "dinov3"]))
    assert str(unknown_name("store", "x", [])) == "unknown store 'x': there is none"


def test_a_shell_can_complete_commands_and_their_options(capsys):
    assert soopf(["completion", "nosh"]) == 2
    assert "bash, zsh, tcsh" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        soopf(["completion", "bash"])
    assert not stop.value.code
    script = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    for word in ("run", "compare", "--dataset", "--matmul-precision", "--same-pairs"):
        assert word in script


def test_help_reads_like_text_and_not_like_python(capsys, monkeypatch):
    """The same words stand for values in every command, and a default is named once."""
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("run", "compare", "board", "reproduce", "data", "doctor"):
        with pytest.raises(SystemExit):
            soopf([command, "--help-all"])
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80, command
        for leak in ("(default:", "{None}", "STR", "FLOAT", "MISSING"):
            assert leak not in text, command
        heads = re.findall(r"^  --[\w-]+ (?:\[?([A-Z=]+)\]?)", text, flags=re.MULTILINE)
        assert set(heads) <= {"NAME", "INT", "NUMBER", "FILE", "DIR", "NAME=VALUE"}, command
