"""The tiny data set and encoders, for commands in processes of their own: these draw no reports, which take longest.

Where the environment names a file as HOLD, training waits after its next checkpoint until the file is gone. So a test
meets it there, however fast the machine is. Only those processes import this module: it changes what it imports.
"""

import os
import time
from pathlib import Path
from typing import Any

from soopf_jax.fitting.checkpoint import Checkpoints
from soopf_jax.report import page
from soopf_jax.runtime import interrupt
from tests.slurm.waiting import HOLD
from tests.tiny_parts import open_encoder, open_layered, open_substrate

__all__ = ["open_encoder", "open_layered", "open_substrate"]

page.pages = lambda result, examples=None: {}
_save = Checkpoints.save


def save_and_wait(self: Checkpoints, step: int, tree: Any) -> None:
    """Save, and come back when the checkpoint is written and nothing holds this process any longer."""
    _save(self, step, tree)
    self._finish()
    hold = os.environ.get(HOLD)
    while hold and Path(hold).exists() and not interrupt.asked():
        time.sleep(0.05)


Checkpoints.save = save_and_wait
