"""Threads and processes that live on when a trial has ended.

What libraries keep for the next use is none of a trial's: it is left alone where it does nothing
meanwhile, and closed the way that its library closes it where that is known. The rest is looked at
again after a moment, since what a trial has dropped ends by itself, if not at once.
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

from automl.execution.process_tree import descendants
from automl.record.texts import fit_line

_KEPT_BY = ("automl.", "mlflow.", "tqdm.", "torch._inductor.")
"""Packages whose own threads live as long as the process, and wait: this one's, which take what a
trial's programs log; MLflow's queues; tqdm's monitor; torch's compiler, which reads answers."""
_TRACKER = "resource_tracker import main"
"""In the command of helpers of multiprocessing's and loky's, which remove what a process leaves in
shared memory after it has ended, and must outlive it for that."""
_COMPILER = "/torch/_inductor/compile_worker/"
"""In the command of processes of torch's compiler, which wait for the next use."""
_MOMENT_SECONDS = 0.5
_LOOK_SECONDS = 0.005
_N_CHARACTERS = 80


@dataclass(frozen=True)
class Leftovers:
    """What lives on, in words for people."""

    threads: Sequence[str]
    processes: Sequence[str]
    """They were killed."""


class LivingBefore:
    """What lives before a trial."""

    def __init__(self) -> None:
        self._threads = frozenset(threading.enumerate())
        self._processes = frozenset(_children())

    def end_others(self) -> Leftovers:
        """End the processes that are new, and name them and the threads that are."""
        if not self._new_threads() and not self._new_processes():
            return Leftovers((), ())
        gc.collect()  # what is garbage may end them
        _close_pools()
        ends = time.monotonic() + _MOMENT_SECONDS
        while (self._new_threads() or self._new_processes()) and time.monotonic() < ends:
            time.sleep(_LOOK_SECONDS)
        return Leftovers(
            [*dict.fromkeys(map(_name, self._new_threads()))], end_processes(self._new_processes)
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


def end_processes(find: Callable[[], Sequence[int]]) -> Sequence[str]:
    """Kill what is found, until nothing is; what it was. Those that cannot be killed are left after
    two seconds."""
    named: dict[int, str] = {}
    ends = time.monotonic() + 2.0
    while (found := find()) and time.monotonic() < ends:
        for pid in found:
            named.setdefault(pid, program_of(pid))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    return [*dict.fromkeys(named.values())]


def started_processes() -> Sequence[int]:
    """All that this process has started and that lives, but for what is to outlive it."""
    return [pid for pid in _children() if _TRACKER not in _command(pid)]


# --- threads ---


def _is_kept(thread: threading.Thread) -> bool:
    if isinstance(thread, threading._DummyThread):  # of no library of Python's: one never ends
        return True
    return _origin(thread).startswith(_KEPT_BY) or thread.name.startswith("MLflow")


def _origin(thread: threading.Thread) -> str:
    """The module that it comes from: its class's, or its function's."""
    if type(thread) in (threading.Thread, threading.Timer):
        return str(getattr(getattr(thread, "_target", None), "__module__", ""))
    return type(thread).__module__


def _name(thread: threading.Thread) -> str:
    """What it runs, which is the same in the next trial; its own name is numbered."""
    target = getattr(thread, "_target", None)
    if type(thread) is not threading.Thread:
        target = type(thread)
    name = getattr(target, "__qualname__", None)
    return thread.name if name is None else f"{_origin(thread)}.{name}"


def _close_pools() -> None:
    """Processes that a library keeps between two uses, ended as it does that itself."""
    for module in ("joblib.externals.loky", "loky"):
        reusable = sys.modules.get(f"{module}.reusable_executor")
        executor = getattr(reusable, "_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, kill_workers=True)


# --- processes ---


def _has_children() -> bool:
    """In a microsecond."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> Sequence[int]:
    return descendants(os.getpid()) if _has_children() else ()


def _is_helper(pid: int) -> bool:
    """Whether it waits for the next use, as multiprocessing's fork server does. What that forks is
    a DataLoader's, say, and does not."""
    if pid == _fork_server():
        return True
    command = _command(pid)
    return _TRACKER in command or _COMPILER in command


def _fork_server() -> int | None:
    """That of this process, where it has started one."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return getattr(server, "_forkserver_pid", None)


def program_of(pid: int) -> str:
    """What a process runs, for people."""
    command = _command(pid)
    if command == _command(os.getpid()):
        return "a fork of the trial's process"
    return fit_line(command, _N_CHARACTERS) or f"process {pid}"


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    return ""
