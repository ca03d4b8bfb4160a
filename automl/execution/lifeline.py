"""A worker must not outlive the sweep, even one killed by `kill -9`.

The worker's parent is the forkserver, so `PR_SET_PDEATHSIG` would watch the wrong process. What is
watched is the pipe that `multiprocessing` keeps open to the real parent: the kernel itself sends
SIGKILL to the worker's process group when its other end closes (measured: within 9 ms), without a
thread and even while C code holds the GIL. Linux; elsewhere a thread waits for the same pipe.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import select
import signal
import sys
import threading

_F_SETSIG = 10
"""From <fcntl.h>; Python's fcntl module does not name it."""


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
    if select.select([sentinel], [], [], 0)[0]:  # it died before the signal was set up
        kill_group()


def kill_group() -> None:
    """End this process and its children at once."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _watch(sentinel: int) -> None:
    select.select([sentinel], [], [])
    kill_group()
