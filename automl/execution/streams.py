"""A worker's own standard streams: a file per trial, whatever the trial before did to them.

An objective may close descriptors 0 to 2 or `sys.stdout`, or put something of its own there. That
ends with its trial: the next one begins with the streams that were there before the first.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import TextIO

from automl.record.disk import opener


class Streams:
    """Standard output and error of this process; for its main thread."""

    def __init__(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Those of now are what each trial begins with: a user's module may have put them there."""
        self._own = (sys.stdout, sys.stderr)

    def print_to(self, path: str) -> None:
        """From now on what this process and its children print goes to the end of a file."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for stream in (sys.stdout, sys.stderr, *self._own):
            flush(stream)
        sys.stdout, sys.stderr = self._own  # before the descriptors: one that goes may close its
        _fill_gaps()
        fd = opener(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
        sys.stdout, sys.stderr = _usable(sys.stdout, 1), _usable(sys.stderr, 2)
        self.keep()


def end_process() -> None:
    """Tell the error that is being handled, and end at once.

    Returning would wait for every thread that a user's objective left behind.
    """
    flush(sys.stdout)
    with suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    os._exit(1)


def _fill_gaps() -> None:
    """Take the descriptors among 0, 1 and 2 that are closed: the next file opened would be one."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def flush(stream: TextIO | None) -> bool:
    """Whether the stream takes text: a closed one, None or an object of the user's may not."""
    try:
        stream.flush()  # type: ignore[union-attr]  # the except clause is the check
    except Exception:  # noqa: BLE001  whatever a user's object raises
        return False
    return True


def _usable(stream: TextIO, fd: int) -> TextIO:
    if flush(stream):
        return stream
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
