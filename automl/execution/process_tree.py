"""Finds, names and ends the descendants of a process, and ties a worker's life to its parent's.

Descendants are found on Linux only; elsewhere only a process group can be ended. psutil is not
used: it reads every process of the machine, which takes a thousand times as long.

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
from collections.abc import Callable, Sequence
from contextlib import suppress

from automl.record.texts import fit_line

_PR_SET_CHILD_SUBREAPER = 36
"""The operation's number in <linux/prctl.h>."""
F_SETSIG = 10
"""The command's number in <fcntl.h>; Python's fcntl module does not name it."""
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.002
_OUTLIVING_GRACE_SECONDS = 1.0
_N_CHARACTERS = 80
_TRACKER = "resource_tracker import main"
"""Part of the command of the helpers of multiprocessing and loky that remove what a process leaves
in shared memory after it has ended, and must outlive the process for that."""
_MARK = "AUTOML_WORKER_PID"
"""Environment variable with the worker's pid, which all programs inherit that it starts."""
_COMPILER = "/torch/_inductor/compile_worker/"
"""Part of the command of processes of torch's compiler, which wait for their next use."""


def find_descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, parents first."""
    found: list[int] = []
    with suppress(OSError):  # the process has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read_text(f"/proc/{pid}/task/{task}/children").split())
    alive = [child for child in found if start_ticks(child)]
    return [p for child in alive for p in (child, *find_descendants(child))]


def find_left_descendants() -> Sequence[int]:
    """Return the living descendants of this process without the helpers that must outlive it."""
    return [pid for pid in _own_descendants() if _TRACKER not in _command(pid)]


def find_working_descendants() -> Sequence[int]:
    """Return the living descendants of this process that do not wait for their next use.

    Children of multiprocessing's fork server, such as a DataLoader's workers, do not wait.
    """
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    server_pid = getattr(server, "_forkserver_pid", None)
    left = (pid for pid in find_left_descendants() if pid != server_pid)
    return [pid for pid in left if _COMPILER not in _command(pid)]


def mark_programs() -> None:
    """Let the programs that this process starts be found as its own, whoever their parent is."""
    os.environ[_MARK] = str(os.getpid())


def _find_marked(worker: int) -> Sequence[int]:
    """Return the living programs that were started below a worker, which may have ended."""
    mark = f"\0{_MARK}={worker}\0"
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if mark in f"\0{_read_text(f'/proc/{pid}/environ')}"]


def adopt_orphans() -> None:
    """Make orphaned descendants of this process its own children from now on (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(pid: int) -> None:
    """Kill all descendants of a process, which must not start others meanwhile."""
    kill_found_processes(lambda: find_descendants(pid))


def kill_found_processes(find: Callable[[], Sequence[int]]) -> Sequence[str]:
    """Kill the processes that `find` returns until it returns none; return their programs.

    A killed process takes a moment to end, and may have started another one meanwhile. Processes
    that cannot be killed are left alone after two seconds.
    """
    programs: dict[int, str] = {}
    deadline = time.monotonic() + _KILL_SECONDS
    while (found := find()) and time.monotonic() < deadline:
        for pid in found:
            programs.setdefault(pid, _program(pid))
            _kill(pid)
        time.sleep(_POLL_SECONDS)
    return [*dict.fromkeys(programs.values())]


class OutlivingProcesses:
    """Remembers the descendants of one worker that may outlive it, and kills them.

    A worker that somebody else kills may leave programs with a session of their own, which are no
    longer its descendants: they are found by their environment. Any thread may `note`; one thread
    calls `end`.
    """

    def __init__(self) -> None:
        self._worker = 0
        self._start_ticks: dict[int, str] = {}
        """Start of each process by its id; it tells the process from a later one of the same id."""

    def note(self, pid: int) -> None:
        """Note the descendants of a worker, before it is killed."""
        self._worker = pid
        self._remember(find_descendants(pid))

    def _remember(self, pids: Sequence[int]) -> None:
        found = {pid: start_ticks(pid) for pid in pids}
        self._start_ticks |= {pid: ticks for pid, ticks in found.items() if ticks}

    def end(self) -> Sequence[str]:
        """Kill the processes that outlive the noted worker, which has ended; return their
        programs."""
        self._remember(_find_marked(self._worker) if sys.platform.startswith("linux") else ())
        deadline = time.monotonic() + _OUTLIVING_GRACE_SECONDS
        while (rest := self._living()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return kill_found_processes(self._living) if rest else ()

    def _living(self) -> Sequence[int]:
        return [pid for pid, ticks in self._start_ticks.items() if start_ticks(pid) == ticks]


def process_tree_bytes(pid: int) -> int:
    """Return the main memory of a process and its descendants.

    Memory that several processes share is divided among them.
    """
    return sum(_proportional_bytes(p) for p in (pid, *find_descendants(pid)))


def die_with_parent() -> None:
    """Make this process a group of its own that is killed whole when the parent is gone."""
    os.setsid()
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child process"
    sentinel = int(parent.sentinel)
    if not sys.platform.startswith("linux"):
        threading.Thread(target=_watch, args=(sentinel,), daemon=True).start()
        return
    kill_when_closed(sentinel, -os.getpgrp())


def kill_when_closed(pipe: int, owner: int) -> None:
    """Let the kernel kill a process, or a group (a negative number), when a pipe's other end closes
    (Linux)."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, owner)
    fcntl.fcntl(pipe, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it was closed before the signal was set up
        os.kill(owner, signal.SIGKILL)


def kill_own_group() -> None:
    """End this process and its children at once."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _watch(sentinel: int) -> None:
    select.select([sentinel], [], [])
    kill_own_group()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _own_descendants() -> Sequence[int]:
    try:  # takes a microsecond where this process has no child
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ()
    return find_descendants(os.getpid())


def start_ticks(pid: int) -> str:
    """Return when a process started, in ticks of the clock; empty where it has ended.

    It tells a process from a later one of the same pid.
    """
    fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _proportional_bytes(pid: int) -> int:
    for line in _read_text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _program(pid: int) -> str:
    """Describe, for people to read, the program that a process runs."""
    command = _command(pid)
    if command == _command(os.getpid()):
        return "a fork of the trial's process"
    return fit_line(command, _N_CHARACTERS) or f"process {pid}"


def _command(pid: int) -> str:
    return _read_text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def _read_text(path: str) -> str:
    """Return the text of a file below /proc; empty where the process has ended."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
