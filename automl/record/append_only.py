"""A file to which whole lines are appended, and a checksum for lines of JSON.

The file stays open and locked until it is closed. A torn last line, left by a killed process or a
power cut, is cut off when the file is opened, so that no new line is glued onto half of another.
After a failed write or flush the file takes nothing more, since file and memory may differ from
then on: every later call raises the same error, or `close` does.

A line is with the kernel when `append` returns, so it survives the death of this process. It is on
disk when `flush` returns, or soon after `flush_soon`; many appends share one flush (about 5 ms).

`seal_line` turns `{"n":1}` into `{"n":1,"crc":"…"}`, so that `is_line_damaged` finds a flipped bit.
Readers that do not know the checksum see one more key. A line without a checksum (from an earlier
version or another program) counts as undamaged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automl.errors import StorageError, StudyInUseError
from automl.record.disk import flush_folder, public_file_opener, take_lock, write_atomically
from automl.record.texts import parse_json

FLUSH_SECONDS = 0.05
"""A line is on disk at most this long after `flush_soon`; one flush serves all lines until then."""
_CHUNK_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class AppendOnlyFile:
    """A locked file that takes whole lines from any thread of the one process that writes it.

    Any thread may call `close`.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        # Held while the descriptor is used: the number of a closed one goes to the next file.
        self._write_lock = threading.Lock()  # guards the fields up to the next lock
        self._fd = fd
        self._n_appended = 0
        self._failure: str | None = None
        """The message of the error that every later call raises; None: nothing has failed."""
        self._failure_raised = True
        """The failure was raised; the failure of a flush is raised by the next call only."""
        self._sync_lock = threading.Lock()  # guards `_n_synced`; taken before the write lock
        self._n_synced = 0
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, name=path.name, daemon=True)
        self._flusher.start()

    @classmethod
    def open(cls, path: Path) -> AppendOnlyFile:
        """Open or make the file; a torn last line is cut off and kept aside in `NAME.torn`.

        Raises StudyInUseError when another process has the file open, StorageError when it cannot
        be opened.
        """
        try:
            fd = public_file_opener(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
            try:
                _lock_and_mend(fd, path)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise StorageError(file_error_text(path, "opened", error)) from error
        return cls(path, fd)

    def append(self, lines: bytes) -> int:
        """Write whole lines; return a number for `flush`. Raises StorageError, then always."""
        with self._write_lock:
            self.check()
            self._write(lines)
            self._n_appended += 1
            return self._n_appended

    def read(self, n_bytes: int, offset: int) -> bytes:
        """Return at most `n_bytes` from byte `offset` on. Raises StorageError."""
        with self._write_lock:
            self.check()
            return os.pread(self._fd, n_bytes, offset)

    def flush(self, append_number: int) -> None:
        """Wait until the append with this number is on disk. Raises StorageError if it fails."""
        if not self._flush(append_number):
            self.check()

    def flush_soon(self) -> None:
        """Start a flush of all appended lines within FLUSH_SECONDS, and return at once."""
        if not self._dirty.is_set():  # setting it costs a lock
            self._dirty.set()

    def check(self) -> None:
        """Raise StorageError when an earlier call failed, or the file is closed."""
        if self._failure is not None:
            self._failure_raised = True
            raise StorageError(self._failure)

    def fail(self, failure: str) -> StorageError:
        """Refuse everything from now on; return the error, which every later call raises."""
        self._failure = failure
        return StorageError(failure)

    def close(self) -> None:
        """Flush the file and close it; a second call does nothing.

        Raises StorageError when a flush failed and no call has raised the failure yet.
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
            if not self._failure_raised:
                self.check()
            self._failure = self._failure or f"{self._path} is closed: the sweep has ended."

    # --- inside ---

    def _write(self, lines: bytes) -> None:
        unwritten = lines
        try:
            while unwritten:
                unwritten = unwritten[os.write(self._fd, unwritten) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # if this fails too, the next open cuts the tail
                size_bytes = os.fstat(self._fd).st_size
                os.ftruncate(self._fd, size_bytes - (len(lines) - len(unwritten)))
            raise self.fail(file_error_text(self._path, "written", error)) from error

    def _flush(self, append_number: int) -> bool:
        """Flush if needed, once for many callers; return whether this append is on disk."""
        with self._sync_lock:
            if self._n_synced < append_number:
                with self._write_lock:
                    n_appended_by_now = self._n_appended
                self._sync(n_appended_by_now)
            return self._n_synced >= append_number

    def _sync(self, n_appended: int) -> None:
        """Flush, or note the failure. The caller holds the sync lock."""
        if self._failure is not None:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._failure_raised = False
            self._failure = file_error_text(self._path, "written", error)
        else:
            self._n_synced = n_appended

    def _flush_often(self) -> None:
        while True:
            self._dirty.wait()
            self._dirty.clear()
            self._flush(self._n_appended)
            if self._failure is not None or self._closing.wait(FLUSH_SECONDS):
                return  # the next call, or `close`, raises the failure


def file_error_text(path: Path, verb: str, error: OSError) -> str:
    """Return the message for a file of a study that cannot be opened, read or written."""
    return (
        f"{path} cannot be {verb} ({error.strerror}): make room, or mend the disk or the file's "
        "permissions, then resume the study. What was recorded before is whole."
    )


def _lock_and_mend(fd: int, path: Path) -> None:
    if not take_lock(fd):
        raise StudyInUseError(
            f"{path}: another process writes this study; wait for it, or stop it."
        )
    _cut_torn_tail(fd, path)
    flush_folder(path.parent)  # the file's name, too, is on disk from now on


def _cut_torn_tail(fd: int, path: Path) -> None:
    """Cut off what follows the last newline, once `NAME.torn` has it on disk."""
    size_bytes = os.fstat(fd).st_size
    end = _end_of_lines(fd, size_bytes)
    if end == size_bytes:
        return
    aside = path.with_name(f"{path.name}.torn")
    with open(aside, "ab", opener=public_file_opener) as file:
        file.write(os.pread(fd, size_bytes - end, end) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.ftruncate(fd, end)
    os.fsync(fd)
    logger.warning("%s ended in a torn line of %d bytes; kept in %s", path, size_bytes - end, aside)


def _end_of_lines(fd: int, size_bytes: int) -> int:
    """Return the offset at which the last whole line ends."""
    end = size_bytes
    while end > 0:
        begin = max(0, end - _CHUNK_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


CHECKSUM_KEY = "crc"
_SEAL = b',"crc":"%08x"}'
_N_SEAL_BYTES = len(_SEAL % 0)
_SEAL_BEGIN, _SEAL_END = b',"crc":"', b'"}'


def seal_line(line: bytes) -> bytes:
    """Return a JSON object (one line, no newline) with its checksum added as the last key."""
    body = line[:-1]
    return body + _SEAL % zlib.crc32(body)


def is_line_damaged(line: bytes) -> bool:
    """Return whether the line (without its newline) carries a checksum that does not fit it."""
    if line.endswith(_SEAL % zlib.crc32(line[:-_N_SEAL_BYTES])):
        return False
    end = line[-_N_SEAL_BYTES:]
    return end.startswith(_SEAL_BEGIN) and end.endswith(_SEAL_END)


def parse_sealed_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, without its checksum. Raises ValueError for a line that is
    damaged or no object."""
    if is_line_damaged(line):
        raise ValueError("it is not what its checksum was made of")
    fields = parse_json(line)
    if not isinstance(fields, dict):
        raise ValueError("it is no object of JSON")
    fields.pop(CHECKSUM_KEY, None)
    return fields


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file at `path` by a JSON object with its checksum. It may be lost."""
    write_atomically(path, seal_line(json.dumps(content).encode()).decode())


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raises OSError, and ValueError for one that is damaged."""
    return parse_sealed_line(path.read_bytes().rstrip(b"\n"))
