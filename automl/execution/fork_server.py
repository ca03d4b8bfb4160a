"""What the fork server loads before all else: it starts sooner, and its children share more memory.

Loading torch makes some hundred thousand objects that are never garbage. While they are made the
collector looks through them again and again (a sixth of the time), then once more in each child,
which must copy each page that it looks at. So it is off in the server, and a child looks through
its own objects alone. At its end the server drops all at once: taking torch apart object by object
costs 0.5 s of a core, which the next program could use.

Ctrl-C and SIGTERM are the sweep's business: the server ignores them (`record/stopping.py`).

Has its effect when imported, since the fork server of `multiprocessing` takes nothing but the names
of modules; imported by nobody else.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal

from automl.record.stop_signals import ASKED_TO_STOP

_SERVER = os.getpid()


def _spare_children() -> None:
    if os.getpid() == _SERVER:  # what a worker forks is the user's business
        gc.freeze()


def _collect_in_child() -> None:
    if os.getppid() == _SERVER:
        gc.enable()


def _end() -> None:
    if os.getpid() == _SERVER:
        os._exit(0)


for _number in ASKED_TO_STOP:
    signal.signal(_number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_STOP)
gc.disable()
os.register_at_fork(before=_spare_children, after_in_child=_collect_in_child)
atexit.register(_end)
