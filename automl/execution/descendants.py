"""The processes that a process started, and all that those started (Linux; elsewhere none are
found, and a process group is all that can be ended)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""From <linux/prctl.h>."""
_N_LOOKS = 1000
_LOOK_SECONDS = 0.002
"""A process that is killed takes a moment to end, and may have started another meanwhile."""


def descendants(pid: int) -> list[int]:
    """The living descendants of a process, parents first."""
    found = [child for child in _children(pid) if _is_alive(child)]
    return [p for child in found for p in (child, *descendants(child))]


def adopt_orphans() -> None:
    """From now on what a descendant of this process leaves behind becomes its own child (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(pid: int) -> None:
    """End them all, and wait until they are gone; the process itself starts no more meanwhile."""
    for _ in range(_N_LOOKS):
        found = descendants(pid)
        if not found:
            return
        for child in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def memory_bytes(pid: int) -> int:
    """Main memory of a process and its descendants; what several share is divided among them."""
    return sum(_proportional_bytes(p) for p in (pid, *descendants(pid)))


def _children(pid: int) -> list[int]:
    """None of one that has ended, be it while one looks."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                found.extend(map(int, children.split()))
    return found


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
