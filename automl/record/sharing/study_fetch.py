"""Make the folder of a shared study, or bring it up to date, from the database alone.

Commands that need no sweep use it, and folders that know only a URL and a study name. A running
sweep brings its own folder up to date (`shared_record.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from automl.config import StudyConfig
from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.record.disk import write_durably
from automl.record.lease import this_boot
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.shared_log import SharedLogCopy, readable_events, ship_lines
from automl.record.sharing.study_tables import OpenTrial, StoredStudy
from automl.record.study_directory import StudyDirectory, read_study_place
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, StudyRecordBuilder
from automl.trial import StudyEdited

MAX_FETCHED_EVENTS = 10_000
"""Number of events that are copied in one transaction."""


@dataclass(frozen=True)
class FetchedStudy:
    """The state of a study in the database, for commands without a sweep."""

    n_trials: int
    n_asked: int
    """The number of trials that the study has."""
    identity: Mapping[str, Any]
    """The identity that the study was begun with."""
    edits: tuple[StudyEdited, ...]
    at_work: Mapping[str, int]
    """The number of running trials by the name of their machine."""

    @property
    def where_at_work(self) -> str:
        """Text that counts the running trials by machine: `2 on one, 4 on two`."""
        return _places_text(self.at_work)


def _places_text(at_work: Mapping[str, int]) -> str:
    return ", ".join(f"{n} on {host}" for host, n in sorted(at_work.items()))


def fetch_study(study: StudyConfig) -> FetchedStudy:
    """Make the folder of `study`, or bring it up to date, and return the study's state.

    Lines that earlier sweeps of the folder could not ship are shipped. A folder in which a sweep
    works is left to the sweep. Raises ConfigError when the database cannot be used or has no such
    study, StorageError.
    """
    assert study.storage is not None
    assert study.name is not None
    with Database(study.storage) as database:
        database.check()
        stored = find_stored_study(database, study.name)
        # A sweep that works in the folder does the same all the time.
        with (
            suppress(StudyInUseError),
            StudyDirectory.open(study, must_exist=False, waits=False) as directory,
        ):
            _bring_up(database, stored, directory.files)
        return _fetched(database, stored)


def read_stored_studies(storage: str) -> Iterator[tuple[str, StudyRecord, FetchedStudy]]:
    """Yield the name, the record and the state of each study of a database; nothing is written.

    Raises ConfigError for a database that cannot be used, and StorageError.
    """
    with Database(storage) as database:
        database.check()
        with database.transaction() as cursor:
            names = study_tables.study_names(cursor) if study_tables.has_tables(cursor) else []
        for name in names:
            stored, study, n_read = find_stored_study(database, name), StudyRecordBuilder(), 0
            while n_read < stored.n_events:
                with database.transaction() as cursor:
                    events = study_tables.events_after(
                        cursor, stored.id, n_read, MAX_FETCHED_EVENTS
                    )
                for written in readable_events(events):
                    study.take(written.event)
                n_read += len(events) or stored.n_events
            yield name, study.record(), _fetched(database, stored)


def _fetched(database: Database, stored: StoredStudy) -> FetchedStudy:
    with database.transaction() as cursor:
        open_trials = study_tables.open_trials(cursor, stored.id)
        edits = study_tables.find_edits(cursor, stored.id)
    at_work = _count_running(open_trials)
    return FetchedStudy(stored.n_trials, stored.n_asked, stored.identity, edits, at_work)


def _count_running(open_trials: Sequence[OpenTrial]) -> Mapping[str, int]:
    """Return the number of running trials by the name of their machine."""
    here = this_boot()
    return Counter(
        trial.holder.host
        for trial in open_trials
        if trial.holder and not (trial.lapsed or trial.holder.is_gone(here))
    )


def delete_stored_study(study: StudyConfig) -> None:
    """Delete the study from its database, if it is there. Raises StudyInUseError while trials of it
    run anywhere, ConfigError for a database that cannot be used, and StorageError."""
    assert study.storage is not None
    assert study.name is not None
    with Database(study.storage) as database:
        database.check()
        with database.transaction() as cursor:
            stored = look_up_study(cursor, database.where, study.name)
            if stored is None:
                return
            study_tables.lock_study(cursor, stored.id)
            running = _count_running(study_tables.open_trials(cursor, stored.id))
            if running:
                raise StudyInUseError(
                    f"study.name={study.name}: its sweeps are at work ({_places_text(running)}); "
                    "wait for them, or stop them."
                )
            study_tables.delete_study(cursor, stored.id)


def fetch_edits(study: StudyConfig) -> tuple[StudyEdited, ...]:
    """Return the edits of the study in its database; none, where the database lacks the study.

    Raises ConfigError for a database that cannot be used, and StorageError.
    """
    assert study.storage is not None
    assert study.name is not None
    with Database(study.storage) as database:
        database.check()
        with database.transaction() as cursor:
            stored = look_up_study(cursor, database.where, study.name)
            return () if stored is None else study_tables.find_edits(cursor, stored.id)


def fetch_stored_config(study: StudyConfig) -> str | None:
    """Return the config that `study` was begun with, as YAML; None: the database lacks it."""
    assert study.storage is not None
    assert study.name is not None
    with Database(study.storage) as database:
        database.check()
        with database.transaction() as cursor:
            stored = look_up_study(cursor, database.where, study.name)
    return None if stored is None else stored.config


def ship_unshipped_logs(database: Database, study: StoredStudy, directory: Path) -> None:
    """Ship the logs that sweeps of this folder left when they were killed or cut off."""
    for path in sorted(StudyFiles(directory).outbox.glob("*.log")):
        with database.transaction() as cursor:
            known = study_tables.is_sweep_of_study(cursor, study.id, path.stem)
        if not known:
            raise StorageError(
                f"{path}: {database.where} knows no such sweep of study {study.name}: it was set "
                "back, or is another. Name the one that the study was begun with, or move the file "
                "away."
            )
        while ship_lines(database, study.id, path.stem, path):
            pass
        path.unlink()


def check_folder(copy: SharedLogCopy, study: StoredStudy, directory: Path, where: str) -> None:
    """Raise ConfigError if the folder is of another study, or knows more than the database."""
    place = read_study_place(directory)
    if place is not None and place.study_uuid != study.uuid:
        raise ConfigError(
            f"study.name={study.name}: {where} holds another study of this name than {directory}. "
            "Name the database that this one was begun with, or another study.name or study.dir."
        )
    if copy.n_lines > study.n_events:
        raise ConfigError(
            f"study.name={study.name}: {directory} has {copy.n_lines} events of the study, and "
            f"{where} has {study.n_events}: the database was set back, or is another. Name the one "
            "that it was begun with, or another study.dir."
        )


def find_stored_study(database: Database, name: str) -> StoredStudy:
    """Return the study in the database. Raises ConfigError where there is none, StorageError."""
    with database.transaction() as cursor:
        stored = look_up_study(cursor, database.where, name)
        if stored is not None:
            return stored
        names = study_tables.study_names(cursor) if study_tables.has_tables(cursor) else []
    existing = f"it has: {', '.join(names)}" if names else "it has none"
    raise ConfigError(
        f"study.name={name}: no such study in {database.where}; {existing}. Name the study.storage "
        "that it was begun with."
    )


def look_up_study(cursor: psycopg.Cursor, where: str, name: str) -> StoredStudy | None:
    """Return the stored study; None: the database lacks the study, or our tables."""
    if not study_tables.has_tables(cursor):
        return None
    study_tables.make_tables(cursor, where)  # they exist; this checks their version
    return study_tables.find_study(cursor, name)


def _bring_up(database: Database, study: StoredStudy, files: StudyFiles) -> None:
    with closing(SharedLogCopy(files.events)) as copy:
        check_folder(copy, study, files.path, database.where)
        ship_unshipped_logs(database, study, files.path)
        while True:
            with database.transaction() as cursor:
                events = study_tables.events_after(
                    cursor, study.id, copy.n_lines, MAX_FETCHED_EVENTS
                )
            copy.add(events)
            if len(events) < MAX_FETCHED_EVENTS:
                break
    if not files.config.exists():
        write_durably(files.config, study.config)
