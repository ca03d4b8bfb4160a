"""`refit.pt`, put into the study."""

from __future__ import annotations

import os
from pathlib import Path

from automl.execution.remote import call_in_child
from automl.tracking.say import say_on_stdout
from automl.training.refitted import RefitFile
from automl.trial import Entry

WRITE = "automl.training.refit_file:write"


def keep(asked: RefitFile) -> None:
    """Write it, in a process that may load torch, and say where it is. Raises AutoMLError."""
    call_in_child(Entry(WRITE, asked))
    path = Path(asked.path)
    say_on_stdout(f"refitted model: {os.path.relpath(path)} ({path.stat().st_size:,} bytes)")
