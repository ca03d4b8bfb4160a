"""Starts programs for one worker, and lets nothing of them outlive it. A program of its own.

    python -I -S keeper.py FD        started once for a worker, in a session of its own

It stands between the worker and the program because a worker may be killed at any moment, with its
process group, while what the program started may be in other groups and sessions (the ranks of
`torchrun` are). The end of the socket is the worker's death: then all is killed. Whatever loses its
parent becomes the keeper's child (Linux), so that nothing escapes by forking twice.

It imports nothing of the package, which would take longer than to start a program. What is said
over the socket is a JSON object behind its length: worker → {"argv", "env", "cwd"} with two
descriptors for standard output and error, then {"signal": 15} as often as wanted; keeper →
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
"""From <linux/prctl.h>."""
_THE_SWEEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""They are its business (`record/stopping.py`); programs hear them as usual."""
_MEASURE_SECONDS = 1.0
_MEASURE_SHARE = 50
"""Measuring takes at most one part in so many of the time."""
_LINGER_SECONDS = 0.5
"""How long what a program started may take to end after it, as helpers of Python's do."""
_LOOK_SECONDS = 0.01
_CANNOT_START = 127
_HEAD_BYTES = 4
_LINUX = sys.platform.startswith("linux")


class SupervisedProgram:
    """One program, from its start until nothing of it is left."""

    def __init__(self, start: dict[str, Any], fds: list[int]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            _become(start, fds)
        with suppress(OSError):  # it has done so itself, or is gone
            os.setpgid(self.pid, self.pid)
        for fd in fds:
            os.close(fd)
        self.status: int | None = None
        """As `os.waitstatus_to_exitcode` says; None: it runs."""
        self.peak = self.held = 0
        self._measure_at = time.monotonic() + _MEASURE_SECONDS

    def reap(self) -> None:
        """Take note of what has ended."""
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
        """Main memory, of it and all that it started; whether it was time to."""
        now = time.monotonic()
        if now < self._measure_at:
            return False
        self.held = sum(map(_proportional_bytes, (self.pid, *_descendants(self.pid))))
        self.peak = max(self.peak, self.held)
        took = time.monotonic() - now
        self._measure_at = now + max(_MEASURE_SECONDS, _MEASURE_SHARE * took)
        return True

    def signal(self, number: int) -> None:
        """To its process group; SIGKILL to all that it started besides."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            for pid in _descendants(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def main(fd: int) -> None:
    """Until the worker is gone."""
    worker = socket.socket(fileno=fd)
    worker.set_inheritable(False)  # its end is this process's end, whatever programs live on
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in _THE_SWEEPS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while (start := _started(worker)) is not None:
        program = SupervisedProgram(*start)
        told = _follow(program, worker)
        left = _end_rest(program)
        if not told:
            return
        _say(worker, status=program.status, peak=program.peak, left=left)


def _follow(program: SupervisedProgram, worker: socket.socket) -> bool:
    """Until the program has ended; false: the worker has."""
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
                _say(worker, held=program.held)
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)
        os.close(woken)
    return True


def _end_rest(program: SupervisedProgram) -> list[str]:
    """Kill what is left, and wait until it is gone; the names of those that did not go alone."""
    until = time.monotonic() + _LINGER_SECONDS
    named: dict[int, str] = {}
    while rest := _rest(program):
        if program.status is None or time.monotonic() >= until:
            named |= {pid: _name(pid) for pid in rest if pid not in named}
            program.signal(signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
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


def _become(start: dict[str, Any], fds: list[int]) -> NoReturn:
    """In the child: nothing that is open here is, but the two streams."""
    try:
        os.setpgid(0, 0)
        if _LINUX:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (*_THE_SWEEPS, signal.SIGPIPE, signal.SIGCHLD):
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


# --- what is said ---


def _started(worker: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What to start; words about a program that has ended are passed over."""
    while (message := receive_message(worker)) is not None:
        word, fds = message
        for fd in fds:
            os.set_inheritable(fd, False)
        if fds:
            return word, fds
    return None


def receive_message(peer: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message, with descriptors that came with it; None: nobody is there any more."""
    try:
        head, fds, _, _ = socket.recv_fds(peer, _HEAD_BYTES, 2)
        body = _exactly(peer, int.from_bytes(_exactly(peer, _HEAD_BYTES, head), "big"))
    except (OSError, EOFError):
        return None
    word: dict[str, Any] = json.loads(body)
    return word, fds


def send_message(peer: socket.socket, word: object, fds: list[int] | None = None) -> None:
    """One message. Raises OSError where nobody is there any more."""
    body = json.dumps(word).encode()
    socket.send_fds(peer, [len(body).to_bytes(_HEAD_BYTES, "big")], fds or [])
    peer.sendall(body)


def _exactly(peer: socket.socket, n_bytes: int, begun: bytes = b"") -> bytes:
    got = bytearray(begun)
    while len(got) < n_bytes:
        more = peer.recv(n_bytes - len(got))
        if not more:
            raise EOFError
        got += more
    return bytes(got)


def _say(worker: socket.socket, **word: object) -> None:
    with suppress(OSError):  # it is gone, as the next word from it will tell
        send_message(worker, word)


# --- what runs (Linux; elsewhere a process group is all that can be seen) ---


def _descendants(pid: int) -> list[int]:
    """All that a process started and that lives, parents first."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _text(f"/proc/{pid}/task/{task}/children").split())
    alive = [child for child in found if _state(child) not in ("Z", "X", "")]
    return [p for child in alive for p in (child, *_descendants(child))]


def _state(pid: int) -> str:
    return (_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""])[0]


def _name(pid: int) -> str:
    words = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return words[:80] or _text(f"/proc/{pid}/comm").strip() or "a process"


def _proportional_bytes(pid: int) -> int:
    """What several share is divided among them: workers of a DataLoader hold the same pages."""
    for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main(int(sys.argv[1]))
