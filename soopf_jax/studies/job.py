"""What a job of a cluster does: it starts one command, and ends it in good time when the job has to leave its place.

submitit pickles the object below when a job is submitted, and loads it in the job. It holds the words of the command
and nothing else. This module imports little, because the job keeps it in memory beside the command.
"""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

LEAVE = signal.SIGUSR2
"""Slurm sends this before it ends a job, as submitit asks it to."""
GRACE = 60.0
"""Seconds that the command has to write a checkpoint; Slurm gives the job 90."""


class Command:
    """A command line, as a job of submitit."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        """Run the command. The job ends with its exit code."""
        print(shlex.join(self.words), flush=True)
        # Slurm sends its signals to every process of a job. The command ignores this one; we send it Ctrl-C.
        ours = signal.signal(LEAVE, signal.SIG_IGN)
        self._process = subprocess.Popen(self.words)
        signal.signal(LEAVE, ours)
        while (code := self._process.poll()) is None:
            time.sleep(0.2)  # the handler of LEAVE waits for the process too, so it must not be waited for here
        if code:
            sys.exit(code if code > 0 else 128 - code)

    def checkpoint(self) -> Any:
        """End the command as Ctrl-C does: it keeps what it has done. submitit then lets Slurm start the job again."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
            self._process.kill()
        return DelayedSubmission(Command(self.words))
