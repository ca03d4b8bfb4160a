"""Handles the output file of each trial, a worker's standard streams, and a worker's start and end.

An objective may close descriptors 0 to 2 or `sys.stdout`, or replace them. The effect ends with its
trial: the next trial begins with the streams that were there before the first one.

A process of multiprocessing calls no `atexit` hook (before Python 3.14), and inherits the hooks of
the server that it was forked from. `begin_worker_life` and `end_worker_life` therefore see to it
that a worker calls its own hooks at its end, and ends the processes that it has started.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sys
import traceback
import weakref
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from typing import Any, NoReturn, TextIO

from automl.execution.process_tree import (
    adopt_orphans,
    find_left_descendants,
    kill_found_processes,
)
from automl.record.disk import public_file_opener
from automl.record.texts import fit_text
from automl.trial import FailedOutcome

logger = logging.getLogger(__name__)
_MAX_BYTES = 8192


def read_last_lines(path: Path, n_lines: int) -> str:
    """Return the last lines of a file, at most 8 KiB of it; empty where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MAX_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-n_lines:])


def append_failure(path: Path, failed: FailedOutcome) -> None:
    """Write traceback or cause to the end of the trial's file, on a line of its own.

    A full disk only causes a warning, since the event log has the cause too.
    """
    text = fit_text(failed.details or failed.cause).rstrip()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", opener=public_file_opener) as file:
            if file.tell():
                file.seek(-1, 2)
                text = text if file.read(1) == b"\n" else f"\n{text}"
            file.write(f"{text}\n".encode())
    except OSError as error:
        logger.warning("%s does not take why the trial failed (%s)", path, error.strerror)


class StandardStreams:
    """Sends standard output and error of this process to files; for its main thread."""

    def __init__(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Let each trial begin with the present streams, which a user's module may have set."""
        self._own = (sys.stdout, sys.stderr)

    def print_to(self, path: str) -> None:
        """Append the output of this process and its children to a file from now on."""
        for stream in (sys.stdout, sys.stderr, *self._own):
            flush_stream(stream)
        # Before the descriptors are set: a stream that is dropped may close its descriptor.
        sys.stdout, sys.stderr = self._own
        _fill_gaps()
        fd = _open_output(path)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
        sys.stdout, sys.stderr = _usable(sys.stdout, 1), _usable(sys.stderr, 2)
        self.keep()


def _open_output(path: str) -> int:
    """Open the file for a trial's output, or the null device: no trial fails for its output."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return public_file_opener(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        logger.warning("%s does not take what the trial prints (%s)", path, error.strerror)
        return os.open(os.devnull, os.O_WRONLY)


def end_process_with_error() -> None:
    """Print the error that is being handled, and end the process at once.

    Returning would wait for every thread that a user's objective left behind.
    """
    flush_stream(sys.stdout)
    with suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    os._exit(1)


def _fill_gaps() -> None:
    """Open the null device at closed descriptors among 0 to 2, which a new file would get else."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def flush_stream(stream: TextIO | None) -> bool:
    """Flush a stream; return whether it works. None, a closed or a user's stream may not."""
    try:
        stream.flush()  # type: ignore[union-attr]  # the except clause is the check
    except Exception:  # noqa: BLE001  whatever a user's object raises
        return False
    return True


def _usable(stream: TextIO, fd: int) -> TextIO:
    if flush_stream(stream):
        return stream
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def begin_worker_life() -> None:
    """Prepare a worker process before any code of the user runs.

    The exit hooks that are registered here run after the user's, in reverse order.
    """
    adopt_orphans()
    # A child of the server inherits its start method, forkserver, and could then set no other; a
    # DataLoader would start a server of its own, and take no data set that is not picklable.
    multiprocessing.set_start_method(None, force=True)
    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no other way
        inherited.atexit = False
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]  # as multiprocessing does where it calls hooks
    atexit.register(kill_found_processes, find_left_descendants)
    atexit.register(logging.shutdown)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]  # ours was cleared


def end_worker_life() -> NoReturn:
    """Call the registered exit hooks, and end without waiting for threads of a user's code."""
    _dismiss_compiler(sys.modules.get("torch._inductor.async_compile"))
    atexit._run_exitfuncs()  # prints what a hook raises, and calls the next
    for stream in (sys.stdout, sys.stderr):
        flush_stream(stream)
    os._exit(0)


def _dismiss_compiler(module: Any) -> None:
    """Remove the exit hook of torch's compiler, and mark its pools as stopped.

    The hook would wait many seconds, twice, for processes that have nothing to write.
    """
    if module is not None:
        atexit.unregister(module.shutdown_compile_workers)
        for pool in module._pool_set:
            pool.running = False
