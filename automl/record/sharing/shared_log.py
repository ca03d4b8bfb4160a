"""The event log of a sweep that shares its study, and the way of its lines into the database.

A sweep's own lines first go to its own log (`outbox/SWEEP.log`), which is on this machine's disk
before any other sweep knows of a line. A line of a trial carries the attempt that it belongs to.
`ship_lines` gives them to the table in order, each once, and only while their attempt is the
current one. A refused line is passed over for good: another sweep has the trial.

`events.log` is a copy of the table, line by line in the table's order, so that the number of its
lines tells how far it is. The sweep's own lines come back to it from the table. Readers of
`events.log` thus see what the record has taken, and nothing of a trial that was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, file_error_text, is_line_damaged
from automl.record.event_log import (
    EVENT_NAMES,
    EventLog,
    UnreadableLineError,
    decode_event,
    encode_event,
    read_events,
)
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.study_tables import StoredEvent
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecordBuilder
from automl.record.texts import parse_json
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
    """The `events.log` of a shared study, a copy of the table. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open the copy. Raises StudyInUseError when another process writes it, StorageError."""
        self._path = path
        self._file = AppendOnlyFile.open(path)
        try:
            self.n_lines = _count_lines(path)
        except OSError as error:
            self._file.close()
            raise StorageError(file_error_text(path, "read", error)) from error
        """The number of events of the table that the copy has."""

    def add(self, stored: Sequence[StoredEvent]) -> None:
        """Append the next events of the table. Raises StorageError."""
        self._file.append(b"".join(event.line for event in stored))
        self._file.flush_soon()
        self.n_lines += len(stored)

    def events(self) -> list[Event]:
        """Return all events of the copy. Raises StorageError."""
        try:
            return [event for event, _ in read_events(self._path)]
        except OSError as error:
            raise StorageError(file_error_text(self._path, "read", error)) from error

    def close(self) -> None:
        self._file.close()


def _count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))


def readable_events(stored: Iterable[StoredEvent]) -> Iterator[WrittenEvent]:
    """Yield the events that this version can read."""
    for event in stored:
        try:
            yield WrittenEvent(event.sweep, decode_event(event.line))
        except UnreadableLineError:
            continue  # an event of another version: the copy keeps it; reading it warns


class SharedEventLog(EventLog):
    """An event log that writes only events of trials that this sweep holds."""

    def __init__(self, directory: Path, own: Path, copied: Iterable[Event]) -> None:
        """Open `own`, the file of the sweep's own lines; `copied` are the events of the copy."""
        builder = StudyRecordBuilder()
        for event in copied:
            builder.take(event)
        super().__init__(StudyFiles(directory).events, AppendOnlyFile.open(own), builder)
        self._held_lock = threading.Lock()
        self._attempts: dict[int, int] = {}
        """The attempt of each trial that this sweep holds."""

    # --- held trials ---

    def hold(self, trial: int, attempt: int, known: Iterable[Event] | None = None) -> None:
        """Take events of the trial from now on.

        Pass `known`, all events of the record, where this sweep may have held the trial before:
        events that it wrote after it had lost the trial do not count.
        """
        if known is not None:
            with self._lock:
                self._history.forget(trial)
                for event in known:
                    if isinstance(event, TrialEvent) and event.trial == trial:
                        self._history.new_part(event)
        with self._held_lock:
            self._attempts[trial] = attempt

    def let_go(self, trials: Iterable[int]) -> None:
        """Take no more events of these trials: they have ended, or other sweeps have them."""
        with self._held_lock:
            for trial in trials:
                self._attempts.pop(trial, None)

    @property
    def held(self) -> Mapping[int, int]:
        """The attempt of each held trial, by number."""
        with self._held_lock:
            return dict(self._attempts)

    def holds(self, trial: int) -> bool:
        return trial in self._attempts

    def attempt(self, trial: int) -> int:
        return self._attempts.get(trial, 0)

    # --- events ---

    def append(self, event: Event) -> bool:
        """Write the event as `EventLog.append` does; return False for a trial that is not held."""
        if isinstance(event, TrialEvent) and not self.holds(event.trial):
            return False
        return super().append(event)

    def learn(self, events: Iterable[Event]) -> None:
        """Learn from events of other sweeps, so that they are not logged again."""
        with self._lock:
            for event in events:
                self._history.new_part(event)

    def _line(self, event: Event) -> bytes:
        attempt = self._attempts.get(event.trial) if isinstance(event, TrialEvent) else None
        return encode_event(self._with_relative_path(event), attempt)


MAX_BYTES = 2**18
"""Size limit of one transaction, during which other sweeps wait."""
_NO_TRIAL = -1
_FINAL_KINDS = frozenset(
    EVENT_NAMES[kind] for kind in (FinishedOutcome, PrunedOutcome, TooLargeOutcome, FailedOutcome)
)


@dataclass(frozen=True)
class OwnLogLine:
    """A line of a sweep's own log."""

    text: str
    end: int
    """The offset of the byte after the line."""
    trial: int | None
    attempt: int | None
    is_last: bool
    """The trial has no later lines."""


def read_lines(path: Path, offset: int) -> list[OwnLogLine]:
    """Return the next whole lines from byte `offset` on: up to MAX_BYTES, at least one."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(MAX_BYTES)
            if data and b"\n" not in data:
                data += file.readline()
    except OSError as error:
        raise StorageError(file_error_text(path, "read", error)) from error
    return [*_lines(data[: data.rfind(b"\n") + 1], offset)]


def _lines(data: bytes, offset: int) -> Iterator[OwnLogLine]:
    for raw in data.splitlines(keepends=True):
        offset += len(raw)
        body = raw.rstrip(b"\n")
        try:
            fields = {} if is_line_damaged(body) else parse_json(body)
            trial, attempt, kind = fields.get("trial"), fields.get("attempt"), fields["event"]
            yield OwnLogLine(body.decode("ascii"), offset, trial, attempt, kind in _FINAL_KINDS)
        except (ValueError, KeyError, AttributeError):
            # A damaged disk: no trial has this number, so that the line is refused.
            yield OwnLogLine("", offset, _NO_TRIAL, None, is_last=False)


def accepted_lines(lines: list[OwnLogLine], attempts: Mapping[int, int | None]) -> list[OwnLogLine]:
    """Return the lines of current `attempts`, which are None for trials that have ended."""
    current = dict(attempts)
    accepted = []
    for line in lines:
        if line.trial is not None:
            if line.attempt is None or current.get(line.trial) != line.attempt:
                continue
            if line.is_last:
                current[line.trial] = None
        accepted.append(line)
    return accepted


def ship_lines(database: Database, study: int, sweep: str, path: Path) -> list[OwnLogLine]:
    """Give the table the next lines of the log, each once; return them, refused ones included."""
    with database.transaction() as cursor:
        offset = study_tables.shipped_offset(cursor, sweep)
    lines = read_lines(path, offset)
    if not lines:
        return []
    with database.transaction() as cursor:
        study_tables.lock_study(cursor, study)
        if study_tables.shipped_offset(cursor, sweep) != offset:
            return lines  # an earlier transaction was taken, whose answer was lost
        numbers = {line.trial for line in lines if line.trial is not None}
        accepted = accepted_lines(lines, study_tables.current_attempts(cursor, study, numbers))
        if accepted:
            study_tables.add_events(
                cursor, study, sweep, [(line.end, line.text) for line in accepted]
            )
        if ended := [line.trial for line in accepted if line.is_last and line.trial is not None]:
            study_tables.end_trials(cursor, study, ended)
        study_tables.set_shipped_offset(cursor, sweep, lines[-1].end)
    return lines
