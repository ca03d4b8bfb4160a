"""A file that whole lines are appended to: none is lost, and none glued onto half of another.

It is open and locked for life. A torn last line, which a killed process or a power cut left, is cut
off when it is opened. After a failed write or flush nothing more is taken, since file and memory
may differ from then on: every later call raises the same error, or `close` does.

A line is with the kernel when `append` returns, so that it survives the death of this process. It
is on disk when `flush` returns, or soon after `flush_soon`; many share one flush (of 5 ms here).
What the lines say, and which of them a reader of theirs must not lose, is known to the event log
and the journal, which stand on this.

Lines of JSON that carry a checksum, so that a flipped bit is found where it is.

`{"n":1}` becomes `{"n":1,"crc":"…"}`, which whoever knows nothing of it reads as before: the key is
one more. A line without one (of an earlier version, of another program) is taken as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import zlib
from pathlib import Path

from automl.errors import StorageError, StudyInUseError
from automl.record.disk import flush_folder, opener

FLUSH_SECONDS = 0.05
"""A line is on disk at most this long after `flush_soon`; one flush serves all in between."""
_CHUNK_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class AppendOnlyFile:
    """Use it from any thread of the one process that writes the file; `close` may come from any."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        # Whoever uses the descriptor holds it, as a closed one's number goes to the next file.
        self._write_lock = threading.Lock()  # guards all up to the next lock
        self._fd = fd
        self._n_appended = 0
        self._failure: str | None = None
        """Why every later call raises."""
        self._told = True
        """The failure was raised; one of a flush is not until the next call."""
        self._sync_lock = threading.Lock()  # guards the one below; taken before the write lock
        self._n_synced = 0
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, name=path.name, daemon=True)
        self._flusher.start()

    @classmethod
    def open(cls, path: Path) -> AppendOnlyFile:
        """Open or make the file; a torn last line is cut off and kept aside in `NAME.torn`.

        Raises StudyInUseError when another process has it open, StorageError when it cannot be.
        """
        try:
            fd = opener(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
            try:
                _take(fd, path)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise StorageError(cannot(path, "opened", error)) from error
        return cls(path, fd)

    def append(self, lines: bytes) -> int:
        """Write whole lines; returns a number for `flush`. Raises StorageError, then ever after."""
        with self._write_lock:
            self.check()
            self._write(lines)
            self._n_appended += 1
            return self._n_appended

    def read(self, n_bytes: int, offset: int) -> bytes:
        """At most `n_bytes` from byte `offset` on. Raises StorageError."""
        with self._write_lock:
            self.check()
            return os.pread(self._fd, n_bytes, offset)

    def flush(self, appended: int) -> None:
        """Return when the append of that number is on disk. Raises StorageError when it is not."""
        if not self._flush(appended):
            self.check()

    def flush_soon(self) -> None:
        """Have all that was appended on disk within FLUSH_SECONDS, and return at once."""
        if not self._dirty.is_set():  # setting it costs a lock
            self._dirty.set()

    def check(self) -> None:
        """Raises StorageError when an earlier call failed, or the file is closed."""
        if self._failure is not None:
            self._told = True
            raise StorageError(self._failure)

    def fail(self, failure: str) -> StorageError:
        """Take nothing more. Returns the error that every later call raises, to be raised now."""
        self._failure = failure
        return StorageError(failure)

    def close(self) -> None:
        """Flush, and give the file back; a second call does nothing.

        Raises StorageError when a flush failed and nobody was told yet.
        """
        self._closing.set()
        self._dirty.set()
        self._flusher.join()
        with self._sync_lock, self._write_lock:
            if self._fd < 0:
                return
            self._sync(self._n_appended)  # once more: a line may have come after the flusher's last
            os.close(self._fd)
            self._fd = -1
            if not self._told:
                self.check()
            self._failure = self._failure or f"{self._path} is closed: the sweep has ended."

    # --- inside ---

    def _write(self, lines: bytes) -> None:
        left = lines
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # if that fails too, the next open cuts the tail
                size_bytes = os.fstat(self._fd).st_size
                os.ftruncate(self._fd, size_bytes - (len(lines) - len(left)))
            raise self.fail(cannot(self._path, "written", error)) from error

    def _flush(self, appended: int) -> bool:
        """Whether all up to that append is on disk; many callers share one flush."""
        with self._sync_lock:
            if self._n_synced < appended:
                with self._write_lock:
                    n_appended_by_now = self._n_appended
                self._sync(n_appended_by_now)
            return self._n_synced >= appended

    def _sync(self, n_appended: int) -> None:
        """The sync lock is held."""
        if self._failure is not None:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._told = False
            self._failure = cannot(self._path, "written", error)
        else:
            self._n_synced = n_appended

    def _flush_often(self) -> None:
        while True:
            self._dirty.wait()
            self._dirty.clear()
            self._flush(self._n_appended)
            if self._failure is not None or self._closing.wait(FLUSH_SECONDS):
                return  # the next call raises it, or close


def cannot(path: Path, verb: str, error: OSError) -> str:
    """The message for a file of a study that cannot be opened, read or written."""
    return (
        f"{path} cannot be {verb} ({error.strerror}): make room, or mend the disk or the file's "
        "permissions, then resume the study. What was recorded before is whole."
    )


def _take(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StudyInUseError(
            f"{path}: another process writes this study; wait for it, or stop it."
        ) from None
    _cut_torn_tail(fd, path)
    flush_folder(path.parent)  # the file's name, too, is on disk from now on


def _cut_torn_tail(fd: int, path: Path) -> None:
    """Cut what follows the last newline; it is on disk in the file aside first."""
    size_bytes = os.fstat(fd).st_size
    end = _end_of_lines(fd, size_bytes)
    if end == size_bytes:
        return
    aside = path.with_name(f"{path.name}.torn")
    with open(aside, "ab", opener=opener) as file:
        file.write(os.pread(fd, size_bytes - end, end) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.ftruncate(fd, end)
    os.fsync(fd)
    logger.warning("%s ended in a torn line of %d bytes; kept in %s", path, size_bytes - end, aside)


def _end_of_lines(fd: int, size_bytes: int) -> int:
    """Where the last whole line ends."""
    end = size_bytes
    while end > 0:
        begin = max(0, end - _CHUNK_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


_SEAL = b',"crc":"%08x"}'
_N_BYTES = len(_SEAL % 0)
_BEFORE, _AFTER = b',"crc":"', b'"}'


def seal_line(line: bytes) -> bytes:
    """An object on one line of JSON, with its checksum as the last key."""
    body = line[:-1]
    return body + _SEAL % zlib.crc32(body)


def is_line_damaged(line: bytes) -> bool:
    """Whether the line (without its newline) carries a checksum of something else."""
    if line.endswith(_SEAL % zlib.crc32(line[:-_N_BYTES])):
        return False
    end = line[-_N_BYTES:]
    return end.startswith(_BEFORE) and end.endswith(_AFTER)
