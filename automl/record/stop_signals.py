"""The signals that ask a sweep to stop, and how its other processes ignore them.

A terminal (Ctrl-C, or SIGHUP when it is closed) and a batch system (`timeout`, Slurm's --signal and
its end of time) send them to every process of a job. Only the sweep knows how its trials stop, so
its other processes leave the signals to it. The handlers of the sweep itself are elsewhere. A file
of its own, so that a starting worker imports little.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_forking = threading.local()
"""While this thread forks, `masked` holds the signals that were blocked before."""


def ignore_stop_signals() -> None:
    """Ignore the signals in this process from here on, but not in the processes that it makes.

    A user's code may end a child with `Process.terminate()`, which sends SIGTERM. Only the ignoring
    of SIGINT may be handed on, as a shell does it for processes in the background.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in STOP_SIGNALS[1:]:
        signal.signal(number, _ignore)  # programs inherit SIG_IGN, but no handler
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_listen_again)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the sweep gets the signal, too, and tells its processes to stop."""


def _block() -> None:
    """Block the signals during a fork, so that a child that is ended at once loses none."""
    _forking.masked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS[1:])


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.masked)


def _listen_again() -> None:
    for number in STOP_SIGNALS[1:]:
        if signal.getsignal(number) is _ignore:
            signal.signal(number, signal.SIG_DFL)
    _unblock()
