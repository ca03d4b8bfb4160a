"""The event log of a sweep that shares its study: its own lines, and what it knows of all others'.

Its own lines go to a file of its own first (`shared_log.py`), with the attempt that each belongs
to.
`events.log` is the study's copy of the table, line by line in the table's order, so that the number
of its lines tells how far it is; the sweep's own lines come back to it from there. So whoever reads
`events.log` sees what the record has taken, and nothing of a trial that was lost.

A sweep's own log, and its way into the table: in order, each line once, none of a lost trial.

The log (`outbox/SWEEP.log`) is on this machine's disk before anybody else knows of a line. A line
of a trial carries the attempt that it belongs to, and is taken only while that is the current one.
What was refused is passed over for good: somebody else has the trial.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, cannot, is_line_damaged
from automl.record.event_log import (
    EVENT_NAMES,
    EventLog,
    UnreadableLineError,
    decode,
    encode,
    read_events,
)
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.study_tables import StoredEvent
from automl.record.study_files import StudyFiles
from automl.record.study_record import LoggedHistory, StudyFold
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    PrunedOutcome,
    TooLargeOutcome,
    TrialEvent,
)


@dataclass(frozen=True)
class WrittenEvent:
    """An event of the table, and the sweep that wrote it."""

    sweep: str
    event: Event


class SharedLogCopy:
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


def read(stored: Iterable[StoredEvent]) -> Iterator[WrittenEvent]:
    """Those that this version can read."""
    for event in stored:
        try:
            yield WrittenEvent(event.sweep, decode(event.line))
        except UnreadableLineError:
            continue  # of another version: the copy keeps it, and says so when it is read


class SharedEventLog(EventLog):
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


def relearn(seen: LoggedHistory, trial: int, events: Iterable[Event]) -> None:
    """What of the trial is logged, from those events alone."""
    seen.forget(trial)
    for event in events:
        if isinstance(event, TrialEvent) and event.trial == trial:
            seen.news(event)


OUTBOX = "outbox"
MAX_BYTES = 2**18
"""Shipped in one transaction, which keeps others waiting."""
_NO_TRIAL = -1
_LAST = frozenset(
    EVENT_NAMES[kind] for kind in (FinishedOutcome, PrunedOutcome, TooLargeOutcome, FailedOutcome)
)


@dataclass(frozen=True)
class OwnLogLine:
    """A line of a sweep's own log."""

    text: str
    end: int
    """The byte after it."""
    trial: int | None
    attempt: int | None
    is_last: bool
    """Nothing comes after it of that trial."""


def read_lines(path: Path, offset: int) -> list[OwnLogLine]:
    """The next whole lines from that byte on, of MAX_BYTES or one. Raises StorageError."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(MAX_BYTES)
            if data and b"\n" not in data:
                data += file.readline()
    except OSError as error:
        raise StorageError(cannot(path, "read", error)) from error
    return [*_lines(data[: data.rfind(b"\n") + 1], offset)]


def _lines(data: bytes, offset: int) -> Iterator[OwnLogLine]:
    for raw in data.splitlines(keepends=True):
        offset += len(raw)
        body = raw.rstrip(b"\n")
        try:
            fields = {} if is_line_damaged(body) else json.loads(body)
            trial, attempt, kind = fields.get("trial"), fields.get("attempt"), fields["event"]
            yield OwnLogLine(body.decode("ascii"), offset, trial, attempt, kind in _LAST)
        except (ValueError, KeyError, AttributeError):
            yield OwnLogLine(
                "", offset, _NO_TRIAL, None, is_last=False
            )  # a damaged disk: nobody has it


def accepted_lines(lines: list[OwnLogLine], attempts: Mapping[int, int | None]) -> list[OwnLogLine]:
    """Those that the record takes, by the current attempt of each trial (None: it has ended)."""
    now = dict(attempts)
    taken = []
    for line in lines:
        if line.trial is not None:
            if line.attempt is None or now.get(line.trial) != line.attempt:
                continue
            if line.is_last:
                now[line.trial] = None
        taken.append(line)
    return taken


def ship_lines(database: Database, study: int, sweep: str, path: Path) -> list[OwnLogLine]:
    """Give the table the next lines of that log; returns them, refused ones included.

    Raises StorageError. Repeated after a lost answer it gives none twice.
    """
    with database.transaction() as cursor:
        offset = study_tables.shipped(cursor, sweep)
    lines = read_lines(path, offset)
    if not lines:
        return []
    with database.transaction() as cursor:
        study_tables.lock_study(cursor, study)
        if study_tables.shipped(cursor, sweep) != offset:
            return lines  # an earlier transaction was taken, whose answer was lost
        numbers = {line.trial for line in lines if line.trial is not None}
        taken = accepted_lines(lines, study_tables.attempts(cursor, study, numbers))
        if taken:
            study_tables.add_events(cursor, study, sweep, [(line.end, line.text) for line in taken])
        if ended := [line.trial for line in taken if line.is_last and line.trial is not None]:
            study_tables.end_trials(cursor, study, ended)
        study_tables.set_shipped(cursor, sweep, lines[-1].end)
    return lines
