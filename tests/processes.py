"""Whether processes are there, for tests that end them, and which a program has left behind."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

LEFT_SECONDS = 3.0
"""How long processes of a sweep may be there after it."""


def is_running(pid: int) -> bool:
    """Not where it is dead and only not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # none from the start, or none between opening and reading
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


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
    """Return the processes that are still there `LEFT_SECONDS` from now."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (found := processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [describe(process) for process in found if is_running(process.pid)]
