"""Starts programs for one worker, and ends all their processes with it. Runs as its own process.

    python -I -S program_keeper.py FD    started once for a worker, in a session of its own

The keeper stands between worker and program, because a worker may be killed at any moment with its
process group, while the program's children may be in other groups and sessions (the ranks of
`torchrun` are). When the socket closes, the worker is dead, and the keeper kills everything. A
process that loses its parent becomes the keeper's child (Linux), so that none escapes by forking
twice.

It imports nothing of the package, because that would take longer than to start a program. Messages
on the socket are JSON objects after their length. The worker sends {"argv", "env", "cwd"} with two
descriptors for standard output and error, then any number of {"signal": 15}. The keeper sends
{"held": bytes} about once a second, and {"status", "peak", "left"} when the program and all that it
started are gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Numbers of options of `prctl`, which <linux/prctl.h> defines."""
_SWEEP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that only the sweep handles (`record/stop_signals.py`). The keeper ignores them, and a
program gets them as usual."""
_MEASURE_SECONDS = 1.0
_MEASURE_RATIO = 50
"""The time between two measurements is at least this many times the time of one."""
_LINGER_SECONDS = 0.5
"""Seconds that a program's children get to end after it, as helper processes of Python's do."""
_POLL_SECONDS = 0.01
_CANNOT_START = 127
_HEAD_BYTES = 4
_LINUX = sys.platform.startswith("linux")


class SupervisedProgram:
    """One program, from its start until nothing of it is left."""

    def __init__(self, start: dict[str, Any], fds: list[int]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            _exec_program(start, fds)
        with suppress(OSError):  # the child has done so itself, or is gone
            os.setpgid(self.pid, self.pid)
        for fd in fds:
            os.close(fd)
        self.status: int | None = None
        """The exit code, as `os.waitstatus_to_exitcode` returns it; None: the program runs."""
        self.peak = self.held = 0
        self._measure_at = time.monotonic() + _MEASURE_SECONDS

    def reap(self) -> None:
        """Collect the exit status of all children that have ended."""
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    self.peak = max(self.peak, usage.ru_maxrss * (1024 if _LINUX else 1))

    def has_ended(self) -> bool:
        self.reap()
        return self.status is not None

    def measure(self) -> bool:
        """Measure the main memory of the program and its children if due; return whether so."""
        now = time.monotonic()
        if now < self._measure_at:
            return False
        self.held = sum(map(_proportional_bytes, (self.pid, *_descendants(self.pid))))
        self.peak = max(self.peak, self.held)
        took = time.monotonic() - now
        self._measure_at = now + max(_MEASURE_SECONDS, _MEASURE_RATIO * took)
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group; SIGKILL also to all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            for pid in _descendants(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def main(fd: int) -> None:
    """Run one program after another until the worker is gone."""
    worker = socket.socket(fileno=fd)
    worker.set_inheritable(False)  # a program that lives on must not keep the socket open
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in _SWEEP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while (start := _next_start(worker)) is not None:
        program = SupervisedProgram(*start)
        worker_is_there = _follow(program, worker)
        left = _end_rest(program)
        if not worker_is_there:
            return
        _send(worker, status=program.status, peak=program.peak, left=left)


def _follow(program: SupervisedProgram, worker: socket.socket) -> bool:
    """Wait until the program has ended. Returns False if the worker ended first."""
    wakeup, woken = os.pipe()
    for end in (wakeup, woken):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(woken)
    try:
        while not program.has_ended():
            both: list[Any] = [worker, wakeup]
            ready, _, _ = select.select(both, [], [], _MEASURE_SECONDS)
            if wakeup in ready:
                os.read(wakeup, 4096)
            if worker in ready:
                message = receive_message(worker)
                if message is None:
                    return False
                program.signal(message[0]["signal"])
            if program.measure():
                _send(worker, held=program.held)
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)
        os.close(woken)
    return True


def _end_rest(program: SupervisedProgram) -> list[str]:
    """Kill all remaining processes, wait until they are gone, and return the killed ones' names."""
    until = time.monotonic() + _LINGER_SECONDS
    named: dict[int, str] = {}
    while rest := _rest(program):
        if program.status is None or time.monotonic() >= until:
            named |= {pid: _name(pid) for pid in rest if pid not in named}
            program.signal(signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return [f"{name} (pid {pid})" for pid, name in named.items() if pid != program.pid]


def _rest(program: SupervisedProgram) -> list[int]:
    program.reap()
    if _LINUX:
        return _descendants(os.getpid())
    try:
        os.killpg(program.pid, 0)
    except (ProcessLookupError, PermissionError):
        return []
    return [program.pid]


def _exec_program(start: dict[str, Any], fds: list[int]) -> NoReturn:
    """Replace the child by the program, which inherits no descriptors but the two streams."""
    try:
        os.setpgid(0, 0)
        if _LINUX:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (*_SWEEP_SIGNALS, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for fd, own in zip((nowhere, *fds), (0, 1, 2), strict=True):
            os.dup2(fd, own)
        os.chdir(start["cwd"])
        os.execvpe(start["argv"][0], start["argv"], start["env"])
    except OSError as error:
        os.write(2, f"{start['argv'][0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_START)


# --- messages ---


def _next_start(worker: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next program to start; messages about a program that has ended are skipped."""
    while (message := receive_message(worker)) is not None:
        start, fds = message
        for fd in fds:
            os.set_inheritable(fd, False)
        if fds:
            return start, fds
    return None


def receive_message(peer: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and the descriptors sent with it; None: the peer is gone."""
    try:
        head, fds, _, _ = socket.recv_fds(peer, _HEAD_BYTES, 2)
        body = _receive_bytes(peer, int.from_bytes(_receive_bytes(peer, _HEAD_BYTES, head), "big"))
    except (OSError, EOFError):
        return None
    message: dict[str, Any] = json.loads(body)
    return message, fds


def send_message(peer: socket.socket, message: object, fds: list[int] | None = None) -> None:
    """Send one message, with descriptors. Raises OSError if the peer is gone."""
    body = json.dumps(message).encode()
    socket.send_fds(peer, [len(body).to_bytes(_HEAD_BYTES, "big")], fds or [])
    peer.sendall(body)


def _receive_bytes(peer: socket.socket, n_bytes: int, first: bytes = b"") -> bytes:
    received = bytearray(first)
    while len(received) < n_bytes:
        more = peer.recv(n_bytes - len(received))
        if not more:
            raise EOFError
        received += more
    return bytes(received)


def _send(worker: socket.socket, **message: object) -> None:
    with suppress(OSError):  # the worker is gone, as the next `receive_message` will show
        send_message(worker, message)


# --- processes (Linux; elsewhere only the process group can be seen) ---


def _descendants(pid: int) -> list[int]:
    """Return all living descendants of a process, parents first."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read_text(f"/proc/{pid}/task/{task}/children").split())
    alive = [child for child in found if _state(child) not in ("Z", "X", "")]
    return [p for child in alive for p in (child, *_descendants(child))]


def _state(pid: int) -> str:
    return (_read_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""])[0]


def _name(pid: int) -> str:
    words = _read_text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return words[:80] or _read_text(f"/proc/{pid}/comm").strip() or "a process"


def _proportional_bytes(pid: int) -> int:
    """Return the memory of a process, in bytes, with shared pages divided among their users.

    The workers of a DataLoader share pages.
    """
    for line in _read_text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read_text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main(int(sys.argv[1]))
