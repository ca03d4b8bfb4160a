"""Isolates each trial from the next in the same process: in a worker, and in the sweep's threads.

What a trial changed is put back (`watched_values.py`), and processes that it left behind are
killed. A worker that stays changed ends; the sweep's own process cannot be ended and only warns.
A process per trial would isolate more, and costs too much (`docs/why/rejected-processes.md`).

Threads and processes that a library keeps for its next use do not count as left behind: idle ones
are left alone, and pools are closed by their library's own method where it is known. The rest gets
a moment to end, since objects that a trial has dropped end by themselves, but not always at once.
Threads cannot be ended; they are only named.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from automl.execution.process_tree import find_working_descendants, kill_found_processes
from automl.execution.watched_values import (
    PROCESS_VALUES,
    THREAD_VALUES,
    Values,
    put_back_watched_values,
    read_watched_values,
)
from automl.record.texts import fit_line

_KEPT_BY = ("automl.", "mlflow.", "tqdm.", "torch._inductor.")
"""Packages whose own threads live as long as the process, and wait: threads of this package, which
take what a trial's programs log; MLflow's queues; tqdm's monitor; torch's compiler, which reads
answers."""
_GRACE_SECONDS = 0.5
_POLL_SECONDS = 0.005

logger = logging.getLogger(__name__)


class WorkerIsolation:
    """Isolates the trials of a worker process (a `TrialIsolation`), for its main thread."""

    def __init__(self) -> None:
        self.process_is_reusable = True

    @contextmanager
    def __call__(self) -> Iterator[None]:
        values, living, pid = read_watched_values(), StateBeforeTrial(), os.getpid()
        try:
            yield
        finally:
            _end_fork(pid)
            left = [*put_back_watched_values(values), *living.end_others()]
            if left:
                self.process_is_reusable = False
                logger.warning(
                    "a trial left its process changed, which is ended, and the next trial gets "
                    "another: %s",
                    fit_line("; ".join(left)),
                )


class ThreadIsolation:
    """Isolates trials that run in threads of the sweep's own process (a `TrialIsolation`).

    Values that each thread has of its own are put back after each trial. Values of the whole
    process are put back when no trial runs, since the other running trials rely on them. Threads
    and processes are not looked at: they may be the sweep's, or the user's.
    """

    process_is_reusable = True

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._n_running = 0
        self._before: Values = {}
        """Values of the process as they were when no trial ran."""
        self._warnings: set[str] = set()
        """Warnings that were given already."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        own, pid = read_watched_values(THREAD_VALUES), os.getpid()
        with self._lock:
            self._n_running += 1
            if self._n_running == 1:
                self._before = read_watched_values(PROCESS_VALUES)
            else:
                self._warn_once(
                    "execution=inline: trials run side by side in this process; what one changes "
                    "there (environment, working directory, default dtype, …) is put back when "
                    "none runs. execution=workers keeps them apart."
                )
        try:
            yield
        finally:
            _end_fork(pid)
            left = put_back_watched_values(own)
            with self._lock:
                self._n_running -= 1
                if self._n_running == 0:
                    left = [*left, *put_back_watched_values(self._before)]
                if left:
                    self._warn_once(
                        "a trial left this process changed, which execution=inline cannot end, "
                        f"and the next one may meet that: {fit_line('; '.join(left))}"
                    )

    def _warn_once(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            logger.warning("%s", text)


def _end_fork(pid: int) -> None:
    """End this process if the trial forked it from process `pid`, whose trial goes on there.

    An objective that forks and returns in both would else end its trial twice.
    """
    if os.getpid() != pid:
        os._exit(0)


class StateBeforeTrial:
    """Remembers the threads and child processes that live before a trial."""

    def __init__(self) -> None:
        self._threads = frozenset(threading.enumerate())
        self._processes = frozenset(find_working_descendants())

    def end_others(self) -> Sequence[str]:
        """End the new processes; return a sentence for each of them, and for each new thread."""
        if not self._new_threads() and not self._new_processes():
            return ()
        gc.collect()  # a finalizer of a garbage object may end its thread or process
        _close_pools()
        deadline = time.monotonic() + _GRACE_SECONDS
        while (self._new_threads() or self._new_processes()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        threads = dict.fromkeys(map(_thread_name, self._new_threads()))
        killed = kill_found_processes(self._new_processes)
        return [
            *(f"thread {name} lives on" for name in threads),
            *(f"process was left behind, and killed: {name}" for name in killed),
        ]

    def _new_threads(self) -> Sequence[threading.Thread]:
        others = (thread for thread in threading.enumerate() if thread not in self._threads)
        return [thread for thread in others if not _is_kept(thread)]

    def _new_processes(self) -> Sequence[int]:
        return [pid for pid in find_working_descendants() if pid not in self._processes]


def _is_kept(thread: threading.Thread) -> bool:
    if isinstance(thread, threading._DummyThread):  # C code started it; Python never sees its end
        return True
    return _origin(thread).startswith(_KEPT_BY) or thread.name.startswith("MLflow")


def _origin(thread: threading.Thread) -> str:
    """Return the module of the thread's class, or of its function where the class is Python's."""
    if type(thread) in (threading.Thread, threading.Timer):
        return str(getattr(getattr(thread, "_target", None), "__module__", ""))
    return type(thread).__module__


def _thread_name(thread: threading.Thread) -> str:
    """Name a thread by the function or class it runs, which is the same in the next trial.

    The thread's own name often contains a number.
    """
    runs = getattr(thread, "_target", None) if type(thread) is threading.Thread else type(thread)
    name = getattr(runs, "__qualname__", None)
    return thread.name if name is None else f"{_origin(thread)}.{name}"


def _close_pools() -> None:
    """Shut down the process pool that joblib or loky keeps between two uses, by its own method."""
    for module in ("joblib.externals.loky", "loky"):
        reusable = sys.modules.get(f"{module}.reusable_executor")
        executor = getattr(reusable, "_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, kill_workers=True)
