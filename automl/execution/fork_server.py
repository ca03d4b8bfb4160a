"""Tunes garbage collection in the fork server, so that it starts sooner and shares more memory.

Loading torch makes some hundred thousand objects that are never garbage. The collector looks
through them again and again while they are made (a sixth of the time), then once more in each
child, which must copy each page that it looks at. Therefore the collector is off in the server,
and a child looks through its own objects alone. The server ends without taking torch apart object
by object, which would cost 0.5 s of a core that the next program could use.

The server ignores Ctrl-C and SIGTERM, which the sweep handles (`record/stop_signals.py`).

A process that a trial started in a session of its own outlives a worker that is killed. It becomes
a child of the server, which ends it with itself, at the latest when the sweep has been killed. The
server has a session of its own, so that it does this also where the sweep's group is killed.

While it still loads torch it has no children, and the kernel kills it with the sweep:
multiprocessing would look at its pipe to the sweep only afterwards, and Python calls no handler of
a signal within a library's own code, which takes seconds on a busy machine.

The module is a file of its own because the fork server of `multiprocessing` takes nothing but names
of modules: it acts when it is imported, and only the fork server imports it, before all else.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import os
import select
import signal
import sys
import time
import warnings
from contextlib import suppress
from types import FrameType

from automl.execution.process_tree import (
    F_SETSIG,
    adopt_orphans,
    find_left_descendants,
    kill_found_processes,
    kill_when_closed,
)
from automl.record.stop_signals import STOP_SIGNALS

_SERVER = os.getpid()
_END_SECONDS, _POLL_SECONDS = 2.0, 0.002


def _prepare_fork() -> None:
    if os.getpid() == _SERVER:  # what a worker forks is the user's business
        _handle_end_of_sweep()
        gc.freeze()


def _collect_in_child() -> None:
    if os.getppid() == _SERVER:
        gc.enable()
        signal.signal(signal.SIGIO, signal.SIG_DFL)


def _end() -> None:
    if os.getpid() != _SERVER:
        return
    deadline = time.monotonic() + _END_SECONDS
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < deadline:
            # While a parent dies, its children are in no list for a moment.
            kill_found_processes(find_left_descendants)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_POLL_SECONDS)
    os._exit(0)


def _die_with_sweep() -> None:
    """Let the kernel kill this process when the sweep's end of multiprocessing's pipe closes."""
    if _alive is not None:
        kill_when_closed(_alive, _SERVER)


@functools.cache
def _handle_end_of_sweep() -> None:
    """Let the kernel say (SIGIO) from now on when the pipe closes, since there are children."""
    if _alive is None:
        return

    def end_if_closed(number: int = 0, interrupted: FrameType | None = None) -> None:
        if select.select([_alive], [], [], 0)[0]:
            _end()

    signal.signal(signal.SIGIO, end_if_closed)
    fcntl.fcntl(_alive, F_SETSIG, signal.SIGIO)
    end_if_closed()


def _find_pipe_to_sweep() -> int | None:
    """Return the end of the pipe that multiprocessing's `main` watches; None but on Linux."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and "alive_r" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["alive_r"] if frame and sys.platform.startswith("linux") else None


_alive = _find_pipe_to_sweep()
for _number in STOP_SIGNALS:
    signal.signal(_number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
os.setsid()
adopt_orphans()
# multiprocessing does not expect children that it has not forked.
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
gc.disable()
os.register_at_fork(before=_prepare_fork, after_in_child=_collect_in_child)
atexit.register(_end)
_die_with_sweep()
