"""The event log of a sweep that shares its study: its own lines, and what it knows of all others'.

Its own lines go to a file of its own first (`shipping.py`), with the attempt that each belongs to.
`events.log` is the study's copy of the table, line by line in the table's order, so that the number
of its lines tells how far it is; the sweep's own lines come back to it from there. So whoever reads
`events.log` sees what the record has taken, and nothing of a trial that was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, cannot
from automl.record.codec import UnreadableLineError, decode, encode
from automl.record.events import EventLog, read_events
from automl.record.files import StudyFiles
from automl.record.sharing.tables import StoredEvent
from automl.record.study import Seen, StudyFold
from automl.trial import Event, TrialEvent


@dataclass(frozen=True)
class Taken:
    """An event of the table, and the sweep that wrote it."""

    sweep: str
    event: Event


class Copy:
    """`events.log` of a shared study. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises StudyInUseError when another process writes it, StorageError."""
        self._path = path
        self._file = AppendOnlyFile.open(path)
        try:
            self.n_lines = _count_lines(path)
        except OSError as error:
            self._file.close()
            raise StorageError(cannot(path, "read", error)) from error
        """How many events of the table it has."""

    def add(self, stored: Sequence[StoredEvent]) -> None:
        """The next ones. Raises StorageError."""
        self._file.append(b"".join(event.line for event in stored))
        self._file.flush_soon()
        self.n_lines += len(stored)

    def events(self) -> list[Event]:
        """All that it has. Raises StorageError."""
        try:
            return [event for event, _ in read_events(self._path)]
        except OSError as error:
            raise StorageError(cannot(self._path, "read", error)) from error

    def close(self) -> None:
        self._file.close()


def _count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))


def read(stored: Iterable[StoredEvent]) -> Iterator[Taken]:
    """Those that this version can read."""
    for event in stored:
        try:
            yield Taken(event.sweep, decode(event.line))
        except UnreadableLineError:
            continue  # of another version: the copy keeps it, and says so when it is read


class SharedLog(EventLog):
    """As any event log, for trials that this sweep holds: what belongs to others is not written."""

    def __init__(self, directory: Path, own: Path, copied: Iterable[Event]) -> None:
        """`own` is the file of the sweep's own lines. Raises StorageError."""
        fold = StudyFold()
        for event in copied:
            fold.take(event)
        super().__init__(StudyFiles(directory).events, AppendOnlyFile.open(own), fold)
        self._held_lock = threading.Lock()
        self._attempts: dict[int, int] = {}
        """Of the trials that this sweep holds."""

    # --- what is held ---

    def hold(self, trial: int, attempt: int, known: Iterable[Event] | None = None) -> None:
        """Its lines are taken from now on. `known` is all that the record has, where this sweep may
        have held the trial before: what it wrote when it had lost it does not count."""
        if known is not None:
            with self._lock:
                relearn(self._seen, trial, known)
        with self._held_lock:
            self._attempts[trial] = attempt

    def let_go(self, trials: Iterable[int]) -> None:
        """They have ended, or are somebody else's."""
        with self._held_lock:
            for trial in trials:
                self._attempts.pop(trial, None)

    @property
    def held(self) -> Mapping[int, int]:
        """The attempt of each trial that is held, by number."""
        with self._held_lock:
            return dict(self._attempts)

    def holds(self, trial: int) -> bool:
        return trial in self._attempts

    def attempt(self, trial: int) -> int:
        """See `EventLog.attempt`."""
        return self._attempts.get(trial, 0)

    # --- what is written and heard ---

    def append(self, event: Event) -> bool:
        """As `EventLog.append`; False, too, for a trial that is not held any more."""
        if isinstance(event, TrialEvent) and not self.holds(event.trial):
            return False
        return super().append(event)

    def hear(self, events: Iterable[Event]) -> None:
        """What others have logged is not logged again."""
        with self._lock:
            for event in events:
                self._seen.news(event)

    def _line(self, event: Event) -> bytes:
        attempt = self._attempts.get(event.trial) if isinstance(event, TrialEvent) else None
        return encode(self._movable(event), attempt)


def relearn(seen: Seen, trial: int, events: Iterable[Event]) -> None:
    """What of the trial is logged, from those events alone."""
    seen.forget(trial)
    for event in events:
        if isinstance(event, TrialEvent) and event.trial == trial:
            seen.news(event)
