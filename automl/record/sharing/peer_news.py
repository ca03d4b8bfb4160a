"""What the other sweeps of a shared study did, read from the database, each trial and event once.

The events also go to the copy of the record (`shared_log.py`), this sweep's own included.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.shared_log import (
    SharedEventLog,
    SharedLogCopy,
    WrittenEvent,
    readable_events,
)
from automl.record.sharing.study_fetch import MAX_FETCHED_EVENTS
from automl.record.sharing.study_tables import StoredEvent, StoredTrial
from automl.record.study_files import StudyFiles


@dataclass(frozen=True)
class PeerNews:
    """Trials and events of other sweeps, as they were at one moment.

    The events are of these trials and of earlier ones, and every edit of the study that came before
    one of the trials is known or among the events.
    """

    trials: Sequence[StoredTrial]
    events: Sequence[WrittenEvent]


class PeerNewsReader:
    """Reads the news of other sweeps; any thread may have it read, and one thread takes it."""

    def __init__(self, directory: Path, sweep: str) -> None:
        """Open the copy of the record. Raises StudyInUseError, StorageError."""
        self.copy = SharedLogCopy(StudyFiles(directory).events)
        self.log: SharedEventLog | None = None
        """Learns the events of other sweeps; None: events are not news yet."""
        self._sweep = sweep
        self._reading = threading.Lock()
        """Guards the copy and what follows."""
        self._n_trials_read = 0
        self._events: list[WrittenEvent] = []
        """Events of other sweeps that are in the copy, and not news yet."""
        self._news: queue.SimpleQueue[PeerNews] = queue.SimpleQueue()

    def read(self, database: Database, study: int) -> None:
        """Read all that is new. Raises StorageError."""
        with self._reading:
            n_stored = MAX_FETCHED_EVENTS
            while n_stored == MAX_FETCHED_EVENTS:
                with database.transaction() as cursor:
                    study_tables.read_as_of_now(cursor)
                    stored = study_tables.events_after(
                        cursor, study, self.copy.n_lines, MAX_FETCHED_EVENTS
                    )
                    trials = study_tables.trials_from(cursor, study, self._n_trials_read)
                self._copy(stored)
                n_stored = len(stored)
            # Not before: an edit that came before one of the trials may be among the last events.
            if trials:
                self._n_trials_read = trials[-1].number + 1
            if trials or self._events:
                self._news.put(PeerNews(trials, self._events))
                self._events = []

    def news(self) -> Iterator[PeerNews]:
        """Yield the news since the last call."""
        while not self._news.empty():
            yield self._news.get()

    def close(self) -> None:
        """Close the copy of the record."""
        self.copy.close()

    def _copy(self, stored: Sequence[StoredEvent]) -> None:
        if stored:
            self.copy.add(stored)
        if self.log is not None:  # else `SharedRecord.begin` reads all events from the copy
            events = [*readable_events(e for e in stored if e.sweep != self._sweep)]
            self.log.learn(written.event for written in events)
            self._events += events
