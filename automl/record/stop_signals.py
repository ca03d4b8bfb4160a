"""The signals that ask a sweep to stop. A terminal and a batch system send them to every process of
a job (`timeout`, Slurm's --signal and its end of time); but only the sweep knows how its trials
stop, so all others of its processes leave them to it.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

ASKED_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_forking = threading.local()
"""`masked`: which signals were kept back before, while this thread forks."""


def leave_to_sweep() -> None:
    """This process hears none of them from here on. What it forks or starts does, as usual:
    `Process.terminate()` of a user's code sends SIGTERM, which only SIGINT's being ignored, as a
    shell does it for what runs in the background, may be handed on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in ASKED_TO_STOP[1:]:
        signal.signal(number, _unheard)  # a handler, unlike SIG_IGN, is not handed on to programs
    os.register_at_fork(before=_keep_back, after_in_parent=_let_through, after_in_child=_hear_again)


def _unheard(number: int, frame: FrameType | None) -> None:
    """The sweep hears it, too, and tells."""


def _keep_back() -> None:
    """A child that is ended at once is not to lose that before it can hear."""
    _forking.masked = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP[1:])


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.masked)


def _hear_again() -> None:
    for number in ASKED_TO_STOP[1:]:
        if signal.getsignal(number) is _unheard:
            signal.signal(number, signal.SIG_DFL)
    _let_through()
