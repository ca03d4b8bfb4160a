"""Whether processes are there, for tests that end them, and which a program has left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

LEFT_SECONDS = 3.0
"""How long processes of a sweep may be there after it."""
BUSY_SECONDS = 30.0


def is_running(pid: int) -> bool:
    """Not where it is dead and only not waited for."""
    return process_state(pid) not in "ZX"


def process_state(pid: int) -> str:
    """Return the letter of the kernel for it: `R` runs or waits for a core, `X` is no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # none from the start, or none between opening and reading
        return "X"
    return stat.rpartition(")")[2].split()[0]


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return all processes of programs that were started in the folder, orphans included."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE
            if process.cwd() == str(folder) and not is_ours:
                found.append(process)
    return found


def describe(process: psutil.Process) -> str:
    """Return what a process runs, whose child it is, and how old it is."""
    try:
        with process.oneshot():
            command = " ".join(process.cmdline()) or process.name()
            age_seconds = time.time() - process.create_time()
            parent, state = process.ppid(), process.status()
    except psutil.Error as error:
        return str(error)
    return f"{process.pid} below {parent}, {state}, {age_seconds:.1f} s old: {command[:200]}"


def left_processes(folder: Path) -> list[str]:
    """Return the processes of programs that were started in the folder and do not end."""
    return those_left(lambda: processes_in(folder))


def those_left(find: Callable[[], Sequence[psutil.Process]]) -> list[str]:
    """Return the found processes that are still there `LEFT_SECONDS` from now.

    A busy machine may not run one for seconds that has only to end: while any of them waits for a
    core, `BUSY_SECONDS` are given to all.
    """
    begun = time.monotonic()
    while found := [process for process in find() if is_running(process.pid)]:
        waits = any(process_state(process.pid) == "R" for process in found)
        if time.monotonic() - begun > (BUSY_SECONDS if waits else LEFT_SECONDS):
            break
        time.sleep(0.05)
    return [describe(process) for process in found]
