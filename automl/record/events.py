"""The event log of a study: every event, once, append-only, one line of JSON each.

`append` hands a line to the kernel at once, so that it survives the death of this process; it is
on disk within 50 ms, or before `append` returns where losing it would cost a trial. `record` is
what the log held when it was opened, for taking trials over. Delivering it to MLflow is another
process (`delivery.py`); nothing here waits for it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from automl.errors import StorageError
from automl.record.codec import UnreadableLineError, decode, encode
from automl.record.disk import flush_folder
from automl.record.study import StudyFold
from automl.trial import Checkpointed, Event, Outcome, SweepEnded, SweepStarted

FLUSH_SECONDS = 0.05
"""An event is on disk at most this long after it was written; one flush serves all in between."""
_FLUSHED_AT_ONCE = (Outcome, SweepStarted, SweepEnded)

logger = logging.getLogger(__name__)


def read_events(path: Path, offset: int = 0) -> Iterator[tuple[Event, int]]:
    """Each event from byte `offset` on, with the offset after it; whole lines only.

    A line that is no event (of this version) is skipped with a warning; no file is no events.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # being written, or torn
            offset += len(line)
            try:
                event = decode(line)
            except UnreadableLineError as error:
                logger.warning(
                    "%s: the line before byte %d is no event and is left out (%s)",
                    *(path, offset, error),
                )
                continue
            yield event, offset


class EventLog:
    """Append events from any thread. One process at a time: the study directory's lock sees to it.

    After a failed write nothing more is taken: every later `append` raises StorageError.
    """

    def __init__(self, path: Path, fd: int, fold: StudyFold) -> None:
        self.record = fold.record()
        """What the log held when it was opened."""
        self._path = path
        self._fd = fd
        self._seen = fold.seen
        self._write_lock = threading.Lock()  # guards all above and the two below
        self._n_written = 0
        self._error: str | None = None
        self._told = True
        """The error was raised; one of a flush is not until the next call."""
        self._sync_lock = threading.Lock()  # guards the one below; taken before the write lock
        self._n_synced = 0
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, name="event-log", daemon=True)
        self._flusher.start()

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open or make the log; a torn last line is cut off and kept in a file beside it.

        Raises StorageError when the file cannot be opened, read or mended.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise StorageError(_cannot(path, "opened", error)) from error
        try:
            _cut_torn_tail(fd, path)
            flush_folder(path.parent)
            fold = StudyFold()
            for event, _ in read_events(path):
                fold.take(event)
        except OSError as error:
            os.close(fd)
            raise StorageError(_cannot(path, "read", error)) from error
        return cls(path, fd, fold)

    def append(self, event: Event) -> bool:
        """Write `event`; False when it is dropped: a step that is logged, a trial that has ended.

        Returns when the line is with the kernel; for an outcome, and for the begin and end of a
        sweep, when it is on disk. Raises StorageError when it cannot be written, then ever after.
        """
        line = encode(self._movable(event))
        with self._write_lock:
            self._raise_if_broken()
            if not self._seen.is_new(event):
                return False
            self._write(line)
            self._n_written += 1
            n_written = self._n_written
        if isinstance(event, _FLUSHED_AT_ONCE):
            if not self._flush(n_written):
                self._raise_if_broken()
        elif not self._dirty.is_set():
            self._dirty.set()
        return True

    def close(self) -> None:
        """Flush and close; a second call does nothing.

        Raises StorageError when a flush failed and nobody was told yet.
        """
        self._closing.set()
        self._dirty.set()
        self._flusher.join()
        with self._sync_lock, self._write_lock:
            if self._fd < 0:
                return
            if self._error is None:
                self._sync(self._n_written)
            os.close(self._fd)
            self._fd = -1
            if not self._told:
                self._raise_if_broken()
            self._error = self._error or f"{self._path} is closed: the sweep has ended."

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _movable(self, event: Event) -> Event:
        """With the path of a checkpoint relative to the study, which may be moved or copied."""
        folder = self._path.parent
        if isinstance(event, Checkpointed) and Path(event.path).is_relative_to(folder):
            return replace(event, path=str(Path(event.path).relative_to(folder)))
        return event

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            self._error = _cannot(self._path, "written", error)
            raise StorageError(self._error) from error

    def _flush(self, n_written: int) -> bool:
        """Whether the first `n_written` events are on disk; many callers share one flush."""
        with self._sync_lock:
            if self._n_synced < n_written and self._error is None:
                with self._write_lock:
                    n_written_by_now = self._n_written
                self._sync(n_written_by_now)
            return self._n_synced >= n_written

    def _sync(self, n_written: int) -> None:
        """The sync lock is held."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._told = False
            self._error = _cannot(self._path, "written", error)
        else:
            self._n_synced = n_written

    def _flush_often(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._dirty.clear()
            self._flush(self._n_written)
            if self._error is not None:
                return  # the next append raises it, or close
            self._closing.wait(FLUSH_SECONDS)

    def _raise_if_broken(self) -> None:
        if self._error is not None:
            self._told = True
            raise StorageError(self._error)


def _cut_torn_tail(fd: int, path: Path) -> None:
    """Cut back to the last newline; what is cut goes to `events.log.torn-<nanoseconds>` first."""
    end = size = os.fstat(fd).st_size
    tail = b""
    while end > 0 and b"\n" not in tail:
        begin = max(0, end - 65536)
        tail = os.pread(fd, end - begin, begin) + tail
        end = begin
    torn = tail[tail.rfind(b"\n") + 1 :]
    if not torn:
        return
    aside = path.with_name(f"{path.name}.torn-{time.time_ns()}")
    aside.write_bytes(torn)
    os.ftruncate(fd, size - len(torn))
    os.fsync(fd)
    logger.warning("%s ended in a torn line of %d bytes; kept in %s", path, len(torn), aside)


def _cannot(path: Path, verb: str, error: OSError) -> str:
    return (
        f"{path} cannot be {verb} ({error.strerror}): make room or mend the disk, then resume the "
        "study. All up to the last whole event is safe."
    )
