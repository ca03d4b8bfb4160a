"""A program of the user's as this process sees it: started, read, told to end; never outlives it.

What actually starts it is the keeper, a process of ours beside this one (see `keeper.py`).

Whose environment a program is of: another's Python does not know this package.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from automl.errors import AutoMLError
from automl.objectives.program import program_keeper

_CHUNK_BYTES = 1 << 16
_CLOSE_SECONDS = 5.0
_KILL_SECONDS = 30.0
"""A process that is killed may take so long to be gone, while the kernel takes its memory back."""


class KeeperDiedError(AutoMLError):
    """Raised when the process that starts programs is gone, and what it had started with it."""


@dataclass(frozen=True)
class ProgramEnd:
    """How a program came to its end."""

    status: int
    """Of its exit; below 0 the signal that ended it."""
    peak_bytes: int
    """The most main memory that it held, with all that it started."""
    left_behind: tuple[str, ...]
    """What it had started and that ran on, until it was ended: names with pids."""


class ProgramKeeper:
    """Starts one program after another; one at a time. Ends with this process, or `close`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", program_keeper.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # what kills this process's group is not to kill it
                cwd="/",
            )

    def close(self) -> None:
        """Kill what runs."""
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:  # it waits for a program that the kernel does not let go
            self._process.kill()
            self._process.wait()

    @contextmanager
    def running(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> Iterator[RunningProgram]:
        """A program that has begun; killed, if it still runs, when the block is left."""
        pipes = [os.pipe(), os.pipe()]
        try:
            word = {"argv": list(argv), "env": dict(env), "cwd": str(cwd)}
            self._send(word, [write for _, write in pipes])
        finally:
            for _, write in pipes:
                os.close(write)
        program = RunningProgram(self, [read for read, _ in pipes])
        try:
            yield program
        finally:
            program.close()

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def receive(self) -> dict[str, object]:
        """Its next word. Raises KeeperDiedError."""
        message = program_keeper.receive_message(self._socket)
        if message is None:
            raise KeeperDiedError(
                f"the process that keeps programs (pid {self._process.pid}) was killed, and the "
                "program with it"
            )
        return message[0]

    def signal(self, number: int) -> None:
        with suppress(KeeperDiedError):  # `receive` says so
            self._send({"signal": int(number)}, [])

    def _send(self, word: object, fds: list[int]) -> None:
        try:
            program_keeper.send_message(self._socket, word, fds)
        except OSError as error:
            raise KeeperDiedError(
                f"the process that keeps programs (pid {self._process.pid}) was killed"
            ) from error


class RunningProgram:
    """One program, for the thread that started it."""

    def __init__(self, keeper: ProgramKeeper, streams: Sequence[int]) -> None:
        self._keeper, self._streams = keeper, list(streams)
        self._numbers = {fd: number for number, fd in enumerate(streams)}
        self.ended: ProgramEnd | None = None
        """None: it runs, or what it printed was not read to its end."""
        self._gone: ProgramEnd | None = None
        self.held_bytes = 0
        """Main memory, of it and all that it started, as it was measured last."""
        for fd in streams:
            os.set_blocking(fd, False)

    def read(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        """What it printed since, to standard output (0) or error (1); waits so long for some.

        Raises KeeperDiedError.
        """
        was_gone = self._gone
        fds = self._streams if was_gone else [*self._streams, self._keeper.fd]
        ready, _, _ = select.select(fds, [], [], 0 if was_gone else seconds)
        for fd in [fd for fd in self._streams if fd in ready]:
            yield from self._chunk(fd)
        if self._keeper.fd in ready:
            self._take(self._keeper.receive())
        if was_gone and not ready:
            self.ended = was_gone

    def stop(self, grace_seconds: float) -> Iterator[tuple[int, bytes]]:
        """End it: SIGTERM to its process group, and SIGKILL to whatever is left after the grace;
        meanwhile what it prints."""
        if self._gone is None:
            self._keeper.signal(signal.SIGTERM)
            yield from self._until(time.monotonic() + grace_seconds)
        if self._gone is None:
            self._keeper.signal(signal.SIGKILL)
            yield from self._until(time.monotonic() + _KILL_SECONDS)
        if self._gone is None:
            raise KeeperDiedError("its program cannot be killed: the kernel does not let it go")
        yield from self._until(time.monotonic() + _KILL_SECONDS)

    def close(self) -> None:
        try:
            for _ in self.stop(0.0):
                pass
        finally:
            for fd in self._streams:
                os.close(fd)
            self._streams = []

    def _until(self, ends: float) -> Iterator[tuple[int, bytes]]:
        was_gone = self._gone
        while self.ended is None and self._gone is was_gone and time.monotonic() < ends:
            yield from self.read(max(0.0, ends - time.monotonic()))

    def _chunk(self, fd: int) -> Iterator[tuple[int, bytes]]:
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            yield self._numbers[fd], chunk
        else:
            self._streams.remove(fd)
            os.close(fd)

    def _take(self, word: Mapping[str, object]) -> None:
        match word:
            case {"held": int(held)}:
                self.held_bytes = held
            case {"status": int(status), "peak": int(peak), "left": list(left)}:
                self._gone = ProgramEnd(status, peak, tuple(map(str, left)))
                self.held_bytes = 0


_STARTERS = frozenset(
    ("env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout")
)
"""What starts the program that is named behind it, as it is."""
_PATH = "PATH="


def foreign_program(argv: Sequence[str]) -> Path | None:
    """The program that a command runs, where it is not of this Python's environment; None: it is.

    A shell, or what sets up an environment of its own, is not of this one, whatever it runs.
    """
    program = _program(argv)
    return None if program.parent == Path(sys.executable).parent else program


def _program(argv: Sequence[str]) -> Path:
    path = next((word[len(_PATH) :] for word in argv[1:] if word.startswith(_PATH)), None)
    first = Path(shutil.which(argv[0]) or argv[0])
    if first.name not in _STARTERS:
        return first
    behind = (shutil.which(word, path=path) for word in argv[1:])
    return next((Path(found) for found in behind if found is not None), first)
