"""A program of its own: pass on what a process writes to stderr, but one line in place of the dump of XLA's abort.

XLA aborts a process as soon as the first process of its distributed run has died. The dump tells the user little, and
no code in the process itself can prevent it. In: stderr of the process, as stdin. The line is the argument.
"""

import sys

SIGN = b"Polled an error from coordination service"
"""What XLA writes before it aborts."""


def main() -> None:
    """Pass on lines until stdin ends."""
    out, line = sys.stderr.buffer, sys.argv[1].encode()
    for said in sys.stdin.buffer:
        if SIGN in said:
            out.write(line + b"\n")
            break
        out.write(said)
        out.flush()
    out.flush()
    for _ in sys.stdin.buffer:  # the process must be able to write until it ends
        pass


if __name__ == "__main__":
    main()
