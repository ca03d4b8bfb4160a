"""Finds, adopts and kills the descendants of a process, and ties a worker's life to its parent's.

Descendants are found on Linux only; elsewhere no more than a process group can be ended.

A worker must not outlive the sweep, even a sweep killed by `kill -9`. The worker's parent is the
fork server, so `PR_SET_PDEATHSIG` would watch the wrong process. The kernel watches instead the
pipe that `multiprocessing` keeps open to the real parent: it sends SIGKILL to the worker's process
group when the pipe's other end closes (measured: within 9 ms), without a thread and even while C
code holds the GIL. On other systems than Linux a thread waits for the same pipe.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""The operation's number in <linux/prctl.h>."""
_N_ROUNDS = 1000
_ROUND_SECONDS = 0.002
"""Pause between rounds of killing: a killed process takes a moment to end, and may have started
another one meanwhile."""


def find_descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, parents first."""
    found = [child for child in _children(pid) if _is_alive(child)]
    return [p for child in found for p in (child, *find_descendants(child))]


def adopt_orphans() -> None:
    """Make orphaned descendants of this process its own children from now on (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(pid: int) -> None:
    """Kill all descendants of a process, and wait until they are gone, about two seconds at most.

    The process itself must not start others meanwhile.
    """
    for _ in range(_N_ROUNDS):
        found = find_descendants(pid)
        if not found:
            return
        for child in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def process_tree_bytes(pid: int) -> int:
    """Return the main memory of a process and its descendants.

    Memory that several processes share is divided among them.
    """
    return sum(_proportional_bytes(p) for p in (pid, *find_descendants(pid)))


def _children(pid: int) -> list[int]:
    """Return the children of a process; none if it has ended, even during the reading."""
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


_F_SETSIG = 10
"""The command's number in <fcntl.h>; Python's fcntl module does not name it."""


def die_with_parent() -> None:
    """Make this process a group of its own that is killed whole when the parent is gone."""
    os.setsid()
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child process"
    sentinel = int(parent.sentinel)
    if not sys.platform.startswith("linux"):
        threading.Thread(target=_watch, args=(sentinel,), daemon=True).start()
        return
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(sentinel, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:  # the parent died before the signal was set up
        kill_own_group()


def kill_own_group() -> None:
    """End this process and its children at once."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _watch(sentinel: int) -> None:
    select.select([sentinel], [], [])
    kill_own_group()
