"""What a trial printed, from its own file, and why it failed, at the end of that.

A worker's own standard streams: a file per trial, whatever the trial before did to them.

An objective may close descriptors 0 to 2 or `sys.stdout`, or put something of its own there. That
ends with its trial: the next one begins with the streams that were there before the first.

The end of a worker: what was registered for it is called, and what the worker started is ended.

A process of multiprocessing's calls no `atexit` hook (before Python 3.14), and has those of the
server that it was forked from, which are not its own.
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

from automl.execution.isolation.leftover_processes import end_processes, started_processes
from automl.execution.process_tree import adopt_orphans
from automl.record.disk import opener
from automl.record.texts import fit
from automl.trial import FailedOutcome

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


def append_failure(path: Path, failed: FailedOutcome) -> None:
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


class StandardStreams:
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
            flush_streams(stream)
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
    flush_streams(sys.stdout)
    with suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    os._exit(1)


def _fill_gaps() -> None:
    """Take the descriptors among 0, 1 and 2 that are closed: the next file opened would be one."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def flush_streams(stream: TextIO | None) -> bool:
    """Whether the stream takes text: a closed one, None or an object of the user's may not."""
    try:
        stream.flush()  # type: ignore[union-attr]  # the except clause is the check
    except Exception:  # noqa: BLE001  whatever a user's object raises
        return False
    return True


def _usable(stream: TextIO, fd: int) -> TextIO:
    if flush_streams(stream):
        return stream
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def begin_life() -> None:
    """Before anything of the user's runs. What the hooks below do is done last, in their order from
    the last to the first."""
    adopt_orphans()
    # The server's own method, forkserver, is that of its children, who may then say no other; a
    # DataLoader would begin with a server of its own, and take no data set that is not picklable.
    multiprocessing.set_start_method(None, force=True)
    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no other way
        inherited.atexit = False
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]  # as multiprocessing does where it calls hooks
    atexit.register(end_processes, started_processes)
    atexit.register(logging.shutdown)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]  # ours was cleared


def end_life() -> NoReturn:
    """Call what was registered, and end. It waits for no thread that a user's code left behind."""
    _dismiss_compiler(sys.modules.get("torch._inductor.async_compile"))
    atexit._run_exitfuncs()  # what one raises is printed, and the next is called
    for stream in (sys.stdout, sys.stderr):
        flush_streams(stream)
    os._exit(0)


def _dismiss_compiler(module: Any) -> None:
    """torch's would wait many seconds for its processes, twice, which have nothing to write."""
    if module is not None:
        atexit.unregister(module.shutdown_compile_workers)
        for pool in module._pool_set:
            pool.running = False
