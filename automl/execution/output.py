"""What a trial printed, from its own file, and why it failed, at the end of that."""

from __future__ import annotations

import logging
from pathlib import Path

from automl.record.disk import opener
from automl.record.texts import fit
from automl.trial import Failed

logger = logging.getLogger(__name__)
_MAX_BYTES = 8192


def last_lines(path: Path, n_lines: int) -> str:
    """The end of a file, at most 8 KiB of it; empty where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MAX_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-n_lines:])


def append_failure(path: Path, failed: Failed) -> None:
    """Write traceback or cause to the end of the trial's file, on a line of its own.

    It is in the event log too: a disk that takes no more ends nothing here.
    """
    text = fit(failed.details or failed.cause).rstrip()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", opener=opener) as file:
            if file.tell():
                file.seek(-1, 2)
                text = text if file.read(1) == b"\n" else f"\n{text}"
            file.write(f"{text}\n".encode())
    except OSError as error:
        logger.warning("%s does not take why the trial failed (%s)", path, error.strerror)
