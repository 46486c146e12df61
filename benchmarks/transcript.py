"""How long does a command leave its user without a sign of life? Runs it in a terminal and notes every change.

    python -m benchmarks.transcript soopf run --quick --out /tmp/run

The tool prints when the first output came, the longest times without a change on the screen, and what the screen said
then. It also lists the phases in the order in which they were seen. A machine that does other work at the same time
makes all times longer, so they are upper bounds.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Sequence
from typing import NamedTuple

PHASES = ("loading", "opening", "rendering", "encoding", "preparing", "compiling", "training", "evaluating", "report")
"""Words by which the phases of a run are known on the screen, in the order of a run."""
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")
_SPINNER = re.compile(r"^[-\\|/] ", re.MULTILINE)


class Change(NamedTuple):
    """Something new on the screen."""

    seconds: float
    """Since the command was started."""
    text: str
    """What was written, without the codes that move the cursor and set colours."""


class Transcript(NamedTuple):
    """All that a command wrote to its terminal."""

    changes: Sequence[Change]
    seconds: float
    """How long the command ran."""
    code: int
    """Its exit code."""

    @property
    def text(self) -> str:
        """Everything."""
        return "".join(change.text for change in self.changes)

    def gaps(self) -> list[tuple[float, Change]]:
        """The times without a change of more than the spinner, the longest first, and what was on the screen then."""
        news = [Change(0.0, "")]
        for change in self.changes:
            if _said(change) != _said(news[-1]):
                news.append(change)
        ends = [*(change.seconds for change in news[1:]), self.seconds]
        return sorted(((end - change.seconds, change) for change, end in zip(news, ends, strict=True)), reverse=True)

    def phases(self) -> list[str]:
        """The phases that were seen, in order of their first appearance."""
        return sorted((name for name in PHASES if name in self.text), key=self.text.index)


def record(command: Sequence[str], columns: int = 80, rows: int = 50) -> Transcript:
    """Run a command in a terminal of this size."""
    start = time.monotonic()
    child, terminal = pty.fork()
    if not child:
        os.environ["TERM"] = "xterm"
        os.environ.pop("COLUMNS", None)
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    changes = []
    while written := _read(terminal):
        changes.append(Change(time.monotonic() - start, _ESCAPES.sub(b"", written).decode(errors="replace")))
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return Transcript(changes, time.monotonic() - start, os.waitstatus_to_exitcode(status))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the end of the other side as an error
        return b""


def _said(change: Change) -> str:
    """What a change says beyond the motion of the spinner."""
    return _SPINNER.sub("", change.text.strip())


def main(command: Sequence[str]) -> int:
    """Record a command and print what was found. Returns the exit code of the command."""
    found = record(command)
    first = found.changes[0].seconds if found.changes else found.seconds
    print(
        f"{' '.join(command)}\nran for {found.seconds:.1f} s, exit code {found.code}; first output after {first:.1f} s"
    )
    print(f"phases: {', '.join(found.phases())}\nlongest times without a change (the spinner does not count):")
    for seconds, change in found.gaps()[:10]:
        last = next(reversed([line for line in change.text.splitlines() if line.strip()]), "nothing yet")
        print(f"  {seconds:5.1f} s  at {change.seconds:6.1f} s: {last.strip()}")
    return found.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
