"""Starts, reads and ends a user's program, which never outlives this process.

A second process starts it, the keeper in `program_keeper.py`. The module also finds out whether a
program belongs to this Python's environment; another Python cannot import this package. What the
program prints is not interpreted here.
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
"""Seconds that a killed process gets to disappear, while the kernel takes its memory back."""


class KeeperDiedError(AutoMLError):
    """Raised when the process that starts programs is gone, and its program with it."""


@dataclass(frozen=True)
class ProgramEnd:
    """The end of a program: its exit status, its memory peak, and the processes that it left."""

    status: int
    """The exit status; below 0, minus the signal that ended the program."""
    peak_bytes: int
    """The largest main memory of the program and its children, in bytes."""
    left_behind: tuple[str, ...]
    """Names with pids of the children that ran on and were killed."""


class ProgramKeeper:
    """Starts one program after another, one at a time. It ends with this process or by `close`."""

    def __init__(self) -> None:
        self._socket, keeper_socket = socket.socketpair()
        with keeper_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", program_keeper.__file__, str(keeper_socket.fileno())],
                pass_fds=(keeper_socket.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a signal to this process's group must not kill it
                cwd="/",
            )

    def close(self) -> None:
        """End the keeper, which kills the program that still runs."""
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:  # it waits for a program that the kernel cannot end
            self._process.kill()
            self._process.wait()

    @contextmanager
    def running(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> Iterator[RunningProgram]:
        """Start a program for the block. If it still runs at the end of the block, it is killed."""
        pipes = [os.pipe(), os.pipe()]
        try:
            start = {"argv": list(argv), "env": dict(env), "cwd": str(cwd)}
            self._send(start, [write for _, write in pipes])
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
        """Return the keeper's next message. Raises KeeperDiedError."""
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

    def _send(self, message: object, fds: list[int]) -> None:
        try:
            program_keeper.send_message(self._socket, message, fds)
        except OSError as error:
            raise KeeperDiedError(
                f"the process that keeps programs (pid {self._process.pid}) was killed"
            ) from error


class RunningProgram:
    """One program that runs, for use in the thread that started it."""

    def __init__(self, keeper: ProgramKeeper, streams: Sequence[int]) -> None:
        self._keeper, self._streams = keeper, list(streams)
        self._numbers = {fd: number for number, fd in enumerate(streams)}
        self.ended: ProgramEnd | None = None
        """The end of the program; None: it runs, or its output is not yet read to the end."""
        self._gone: ProgramEnd | None = None
        self.held_bytes = 0
        """Main memory of the program and its children at the last measurement, in bytes."""
        for fd in streams:
            os.set_blocking(fd, False)

    def read(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        """Yield what the program printed to standard output (0) or error (1) since the last call.

        Waits up to `seconds` for output. Raises KeeperDiedError.
        """
        was_gone = self._gone
        fds = self._streams if was_gone else [*self._streams, self._keeper.fd]
        ready, _, _ = select.select(fds, [], [], 0 if was_gone else seconds)
        for fd in [fd for fd in self._streams if fd in ready]:
            yield from self._chunk(fd)
        if self._keeper.fd in ready:
            self._handle(self._keeper.receive())
        if was_gone and not ready:
            self.ended = was_gone

    def stop(self, grace_seconds: float) -> Iterator[tuple[int, bytes]]:
        """End the program, and yield what it prints meanwhile.

        Its process group gets SIGTERM, and whatever is left after the grace gets SIGKILL.
        """
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

    def _handle(self, message: Mapping[str, object]) -> None:
        match message:
            case {"held": int(held)}:
                self.held_bytes = held
            case {"status": int(status), "peak": int(peak), "left": list(left)}:
                self._gone = ProgramEnd(status, peak, tuple(map(str, left)))
                self.held_bytes = 0


_STARTERS = frozenset(
    ("env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout")
)
"""Programs that start the program named after them, in the same environment."""
_PATH = "PATH="


def foreign_program(argv: Sequence[str]) -> Path | None:
    """Return a command's program if it is outside of this Python's environment, else None.

    A shell, or a program that sets up its own environment, counts as outside, whatever it runs.
    """
    program = _program(argv)
    return None if program.parent == Path(sys.executable).parent else program


def _program(argv: Sequence[str]) -> Path:
    path = next((word[len(_PATH) :] for word in argv[1:] if word.startswith(_PATH)), None)
    first = Path(shutil.which(argv[0]) or argv[0])
    if first.name not in _STARTERS:
        return first
    others = (shutil.which(word, path=path) for word in argv[1:])
    return next((Path(found) for found in others if found is not None), first)
