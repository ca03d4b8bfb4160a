"""The study's journal: an append-only file in the format of Optuna's own journal backend.

Optuna's own one loses a study to a torn last line, since its next append glues onto it, and leaves
a lock behind when it is killed within an append. This one keeps the file open and locked for
life, cuts a torn tail when it opens the file, and refuses everything after a failed write, since
file and memory may differ from then on. Optuna's dashboard and stock backend read the same file; a
line's checksum is a key more to them.

A line reaches the file before `append_logs` returns, so a killed process loses none. It reaches
the disk within 50 ms of the next `sync`, many sharing one flush (of 5 ms here): should the power
fail before, the event log still holds how trials ended, and a trial whose asking is lost is asked
for again with the same number and seed. One line is one fact: a trial is created with all its
params at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from automl.errors import StorageError, StudyInUseError
from automl.record.disk import flush_folder
from automl.record.sealed import is_damaged, seal

_CHUNK_BYTES = 64 * 1024
FLUSH_SECONDS = 0.05


class LockedJournal(BaseJournalBackend):
    """Use it for a journal that one process writes at a time.

    Optuna's JournalStorage reads and appends under a lock of its own. The one here is for `close`,
    which may come from another thread: a closed descriptor's number goes to the next file.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`. Raises StudyInUseError, or StorageError when it cannot be."""
        self._path = path
        self._failure: str | None = None
        """Why every later call raises."""
        self._told = True
        """The failure was raised; one of a flush is not until the next call."""
        self._n_read = 0
        """Lines handed out so far, which end at byte `_read_bytes`."""
        self._read_bytes = 0
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StorageError(_cannot_write(path, error)) from error
        try:
            self._take()
        except OSError as error:
            os.close(self._fd)
            raise StorageError(_cannot_write(path, error)) from error
        except StudyInUseError:
            os.close(self._fd)
            raise
        self._fd_lock = threading.Lock()  # whoever writes or reads holds it; `close` too
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, name="journal", daemon=True)
        self._flusher.start()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The lines that were appended, by anyone, since the last call."""
        assert log_number_from == self._n_read, "one storage reads a journal, line after line"
        n_bytes = _CHUNK_BYTES
        while data := self._read(n_bytes):
            lines, newline, _ = data.rpartition(b"\n")
            if not newline:
                if len(data) < n_bytes:
                    return  # a foreign writer is not done with its line
                n_bytes *= 2
                continue
            split = lines.split(b"\n")
            # Optuna counts a line before it applies it, which may raise: hence by the line here.
            for log, line in zip(self._parse(split), split, strict=True):
                self._n_read += 1
                self._read_bytes += len(line) + 1
                yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write whole lines at once. Raises StorageError, and then for ever."""
        lines = [seal(json.dumps(log, separators=(",", ":")).encode()) for log in logs]
        with self._fd_lock:
            self._raise_failure()
            self._write(b"".join(line + b"\n" for line in lines))

    def sync(self) -> None:
        """Have all lines on disk soon. Raises StorageError when an earlier flush failed."""
        self._raise_failure()
        self._dirty.set()

    def close(self) -> None:
        """Flush, and give the file back; later calls raise.

        Raises StorageError when a flush failed and nobody was told yet.
        """
        self._closing.set()
        self._dirty.set()
        self._flusher.join()
        with self._fd_lock:
            if self._fd < 0:
                return
            self._flush()  # once more: a line may have come after the flusher's last
            os.close(self._fd)
            self._fd = -1
            if not self._told:
                self._raise_failure()
            self._failure = self._failure or f"{self._path}: the study is closed."

    def _flush_often(self) -> None:
        while True:
            self._dirty.wait()
            self._dirty.clear()
            self._flush()
            if self._failure is not None or self._closing.wait(FLUSH_SECONDS):
                return

    def _flush(self) -> None:
        if self._failure is None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._told = False
                self._failure = _cannot_write(self._path, error)

    def _read(self, n_bytes: int) -> bytes:
        with self._fd_lock:
            self._raise_failure()
            return os.pread(self._fd, n_bytes, self._read_bytes)

    def _write(self, left: bytes) -> None:
        size_bytes = os.fstat(self._fd).st_size
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # if that fails too, the next open cuts the tail
                os.ftruncate(self._fd, size_bytes)
            raise self._fail(_cannot_write(self._path, error)) from error

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyInUseError(
                f"{self._path}: another process writes this study; wait for it, or stop it."
            ) from None
        # Optuna's own writers leave it behind when killed, and the next one waits 30 s for it.
        Path(f"{self._path}.lock").unlink(missing_ok=True)
        self._cut_torn_tail()
        flush_folder(self._path.parent)  # the file's name, too, is on disk from now on

    def _cut_torn_tail(self) -> None:
        """Cut what follows the last newline, and keep it aside in `NAME.torn`."""
        end = size_bytes = os.fstat(self._fd).st_size
        while end > 0:
            begin = max(0, end - _CHUNK_BYTES)
            newline = os.pread(self._fd, end - begin, begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end < size_bytes:
            torn = os.pread(self._fd, size_bytes - end, end)
            with Path(f"{self._path}.torn").open("ab") as aside:
                aside.write(torn + b"\n")
                aside.flush()
                os.fsync(aside.fileno())
            os.ftruncate(self._fd, end)
            os.fsync(self._fd)

    def _parse(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Lines as values; all in one call, which halves the time to open a large study."""
        with contextlib.suppress(ValueError):
            logs: list[dict[str, Any]] = json.loads(b"[%b]" % b",".join(lines))
            if len(logs) == len(lines) and not any(map(is_damaged, lines)):
                return logs
        for number, line in enumerate(lines, self._n_read + 1):
            try:
                json.loads(line)
            except ValueError as error:
                raise self.damaged(number, str(error)) from error
            if is_damaged(line):
                raise self.damaged(number, "it is not what its checksum was made of")
        raise AssertionError("no line is damaged, but all together are")

    def damaged(self, number: int | None, cause: str) -> StorageError:
        """The error for a line (None: the last one read), after which the journal is of no use."""
        return self._fail(
            f"{self._path}: line {number or self._n_read} is damaged ({cause}); restore the file "
            "from a copy, or begin a new study.name."
        )

    def _fail(self, failure: str) -> StorageError:
        self._failure = failure
        return StorageError(failure)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._told = True
            raise StorageError(self._failure)


def _cannot_write(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be written ({error.strerror}); what was recorded before is whole. Mend "
        "that (free space, permissions), then resume the study."
    )
