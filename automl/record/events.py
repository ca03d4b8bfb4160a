"""The event log of a study: every event, once, append-only, one line of JSON each.

`append` hands a line to the kernel at once, so that it survives the death of this process; it is
on disk within 50 ms, or before `append` returns where losing it would cost a trial; how, is said
in `append_only.py`. `record` is what the log held when it was opened, for taking trials over.
Delivering it to MLflow is another process (`delivery.py`); nothing here waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, cannot
from automl.record.codec import UnreadableLineError, decode, encode
from automl.record.disk import open_at_once
from automl.record.study import StudyFold
from automl.trial import Checkpointed, Event, Outcome, SweepEnded, SweepStarted

_FLUSHED_AT_ONCE = (Outcome, SweepStarted, SweepEnded)

logger = logging.getLogger(__name__)


def read_events(path: Path, offset: int = 0) -> Iterator[tuple[Event, int]]:
    """Each event from byte `offset` on, with the offset after it; whole lines only.

    A line that is no event (of this version) is skipped with a warning; no file is no events.
    """
    with suppress(FileNotFoundError), open(path, "rb", opener=open_at_once) as file:
        if offset:
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
    """Append events from any thread of the one process that holds the study directory's lock.

    After a failed write nothing more is taken: every later `append` raises StorageError.
    """

    def __init__(self, path: Path, file: AppendOnlyFile, fold: StudyFold) -> None:
        self.record = fold.record()
        """What the log held when it was opened."""
        self._path = path
        self._file = file
        self._lock = threading.Lock()  # guards the one below, and that what it knows is written
        self._seen = fold.seen

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open or make the log; a torn last line is cut off and kept in a file beside it.

        Raises StudyInUseError when another process has it open, StorageError when the file cannot
        be opened, read or mended.
        """
        file, fold = AppendOnlyFile.open(path), StudyFold()
        try:
            for event, _ in read_events(path):
                fold.take(event)
        except OSError as error:
            file.close()
            raise StorageError(cannot(path, "read", error)) from error
        return cls(path, file, fold)

    def append(self, event: Event) -> bool:
        """Write what is new of `event`; False when nothing is: metrics or tags that are logged, a
        trial that has ended.

        Returns when the line is with the kernel; for an outcome, and for the begin and end of a
        sweep, when it is on disk. Raises StorageError when it cannot be written, then ever after.
        """
        line = self._line(event)
        with self._lock:
            self._file.check()  # a step that could not be written is no step that is logged
            new = self._seen.news(event)
            if new is None:
                return False
            if new is not event:
                line = self._line(new)
            appended = self._file.append(line)
        if isinstance(event, _FLUSHED_AT_ONCE):
            self._file.flush(appended)
        else:
            self._file.flush_soon()
        return True

    def attempt(self, trial: int) -> int:
        """Which of a trial that several sweeps may have; 0: nobody else can."""
        return 0

    def close(self) -> None:
        """Flush and close; a second call does nothing.

        Raises StorageError when a flush failed and nobody was told yet.
        """
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _line(self, event: Event) -> bytes:
        return encode(self._movable(event))

    def _movable(self, event: Event) -> Event:
        """With the path of a checkpoint relative to the study, which may be moved or copied."""
        if not isinstance(event, Checkpointed):
            return event
        path, folder = Path(event.path), self._path.parent
        inside = path.is_relative_to(folder)
        return replace(event, path=str(path.relative_to(folder))) if inside else event
