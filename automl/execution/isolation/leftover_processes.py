"""Finds the threads and processes that live on when a trial has ended, and ends the processes.

Threads and processes that a library keeps for its next use do not count as left behind: idle ones
are left alone, and pools are closed by their library's own method where it is known. The rest gets
a moment to end, since objects that a trial has dropped end by themselves, but not always at once.
Threads cannot be ended; they are only named.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from automl.execution.process_tree import find_descendants
from automl.record.texts import fit_line

_KEPT_BY = ("automl.", "mlflow.", "tqdm.", "torch._inductor.")
"""Packages whose own threads live as long as the process, and wait: threads of this package, which
take what a trial's programs log; MLflow's queues; tqdm's monitor; torch's compiler, which reads
answers."""
_TRACKER = "resource_tracker import main"
"""Part of the command of the helpers of multiprocessing and loky that remove what a process leaves
in shared memory after it has ended, and must outlive the process for that."""
_COMPILER = "/torch/_inductor/compile_worker/"
"""Part of the command of processes of torch's compiler, which wait for their next use."""
_GRACE_SECONDS = 0.5
_POLL_SECONDS = 0.005
_N_CHARACTERS = 80


@dataclass(frozen=True)
class Leftovers:
    """Names, for people to read, the threads and processes that outlived a trial."""

    threads: Sequence[str]
    processes: Sequence[str]
    """Programs of the processes, which were killed."""


class LivingBefore:
    """Remembers the threads and child processes that live before a trial."""

    def __init__(self) -> None:
        self._threads = frozenset(threading.enumerate())
        self._processes = frozenset(_children())

    def end_others(self) -> Leftovers:
        """End the new processes, and return their names and those of the new threads."""
        if not self._new_threads() and not self._new_processes():
            return Leftovers((), ())
        gc.collect()  # a finalizer of a garbage object may end its thread or process
        _close_pools()
        deadline = time.monotonic() + _GRACE_SECONDS
        while (self._new_threads() or self._new_processes()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return Leftovers(
            [*dict.fromkeys(map(_name, self._new_threads()))],
            kill_found_processes(self._new_processes),
        )

    def _new_threads(self) -> Sequence[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._threads and not _is_kept(thread)
        ]

    def _new_processes(self) -> Sequence[int]:
        if not _has_children():
            return ()
        found = [pid for pid in _children() if pid not in self._processes]
        return [pid for pid in found if not _is_helper(pid)]


def kill_found_processes(find: Callable[[], Sequence[int]]) -> Sequence[str]:
    """Kill the processes that `find` returns until it returns none; return their programs.

    Processes that cannot be killed are left alone after two seconds.
    """
    programs: dict[int, str] = {}
    deadline = time.monotonic() + 2.0
    while (found := find()) and time.monotonic() < deadline:
        for pid in found:
            programs.setdefault(pid, program_of(pid))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return [*dict.fromkeys(programs.values())]


def started_processes() -> Sequence[int]:
    """Return the living descendants of this process, without the helpers that must outlive it."""
    return [pid for pid in _children() if _TRACKER not in _command(pid)]


# --- threads ---


def _is_kept(thread: threading.Thread) -> bool:
    if isinstance(thread, threading._DummyThread):  # C code started it; Python never sees its end
        return True
    return _origin(thread).startswith(_KEPT_BY) or thread.name.startswith("MLflow")


def _origin(thread: threading.Thread) -> str:
    """Return the module of the thread's class, or of its function where the class is Python's."""
    if type(thread) in (threading.Thread, threading.Timer):
        return str(getattr(getattr(thread, "_target", None), "__module__", ""))
    return type(thread).__module__


def _name(thread: threading.Thread) -> str:
    """Name a thread by the function or class it runs, which is the same in the next trial.

    The thread's own name often contains a number.
    """
    target = getattr(thread, "_target", None)
    if type(thread) is not threading.Thread:
        target = type(thread)
    name = getattr(target, "__qualname__", None)
    return thread.name if name is None else f"{_origin(thread)}.{name}"


def _close_pools() -> None:
    """Shut down the process pool that joblib or loky keeps between two uses, by its own method."""
    for module in ("joblib.externals.loky", "loky"):
        reusable = sys.modules.get(f"{module}.reusable_executor")
        executor = getattr(reusable, "_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, kill_workers=True)


# --- processes ---


def _has_children() -> bool:
    """Return whether this process has any child. Takes a microsecond."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> Sequence[int]:
    return find_descendants(os.getpid()) if _has_children() else ()


def _is_helper(pid: int) -> bool:
    """Return whether a process only waits for its next use, as multiprocessing's fork server does.

    Children of the fork server, a DataLoader's workers for example, are no helpers.
    """
    if pid == _fork_server():
        return True
    command = _command(pid)
    return _TRACKER in command or _COMPILER in command


def _fork_server() -> int | None:
    """Return the process id of the fork server that this process has started, if any."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return getattr(server, "_forkserver_pid", None)


def program_of(pid: int) -> str:
    """Describe, for people to read, the program that a process runs."""
    command = _command(pid)
    if command == _command(os.getpid()):
        return "a fork of the trial's process"
    return fit_line(command, _N_CHARACTERS) or f"process {pid}"


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    return ""
