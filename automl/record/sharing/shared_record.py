"""A study that several sweeps work on, as one of these sweeps sees it.

The main thread asks for trials (`claim`, `take_over_trial`) and reads what other sweeps did
(`peer_news`). The threads of `background_duties.py` do the rest. The statements for the database
are in `study_tables.py`.
"""

from __future__ import annotations

import enum
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.config import StudyConfig
from automl.errors import ConfigError, StorageError
from automl.record.disk import flush_folder, make_folder
from automl.record.lease import this_boot, this_holder
from automl.record.sharing import study_tables
from automl.record.sharing.background_duties import LostTrials, SharingThreads
from automl.record.sharing.database import Database, DatabaseAwayError
from automl.record.sharing.peer_news import PeerNews, PeerNewsReader
from automl.record.sharing.shared_log import SharedEventLog, ship_lines
from automl.record.sharing.shared_requests import (
    SweepRequestQueue,
    add_edit,
    end_sweep_lease,
    renew_sweep_lease,
)
from automl.record.sharing.study_fetch import check_folder, ship_unshipped_logs
from automl.record.sharing.study_tables import StoredStudy, StoredTrial
from automl.record.study_files import StudyFiles
from automl.trial import StudyEdited

DRAIN_STEP_SECONDS = 0.05


class TrialClaim(enum.Enum):
    """The answer to a claim of a trial."""

    MADE = "made"
    TAKEN = "taken"
    """Other sweeps have made the trial meanwhile, and perhaps more; or the study was edited."""
    NONE = "none"
    """The study has all its trials, or the database is away."""


@dataclass(frozen=True)
class SharedStudyStanding:
    """The state of the study in the database, read once a second."""

    n_trials: int
    n_asked: int
    """The number of trials that the study has."""
    n_left: int
    """The number of trials that nobody holds and this sweep may take over."""
    others_run: bool
    """There are trials that have not ended and that this sweep does not hold."""
    n_edits: int = 0
    """The number of edits after which the study has `n_trials`."""


class SharedRecord:
    """The part of one sweep in a shared study; made by `open`, ended by `close`."""

    def __init__(self, config: StudyConfig, directory: Path, database: Database) -> None:
        assert config.name is not None
        assert config.storage is not None
        self._config, self._directory = config, directory
        self.where = database.where
        self.sweep = uuid.uuid4().hex
        self._main_database, self._background_database = database, Database(config.storage)
        """The connection of the main thread, and the one of the background threads."""
        with database.transaction() as cursor:
            study_tables.make_tables(cursor, self.where)
            self.stored_study: StoredStudy | None = study_tables.find_study(cursor, config.name)
            """The study in the database; None: the database has no such study yet."""
        self._reader = PeerNewsReader(directory, self.sweep)
        self._log: SharedEventLog | None = None
        self._requests: SweepRequestQueue | None = None
        self._own_path = StudyFiles(directory).outbox / f"{self.sweep}.log"
        self._shipped = 0
        """Bytes of this sweep's own log that the database has looked at."""
        self._unanswered_seconds, self._answered_seconds = 0.0, 0.0
        """When (monotonic) the database last failed to answer; begin of the last answered look."""
        self._gone: Sequence[str] = ()
        """Sweeps of this machine that have died."""
        self._once_held: set[int] = set()
        self._takeable: frozenset[int] = frozenset()
        """Trials that nobody held at the last look, and that this sweep may take over."""
        self._unconfirmed: frozenset[int] = frozenset()
        """Trials that this sweep asked for without an answer; the database may have given them to
        it nevertheless. Only the main thread sets it."""
        self._busy: Callable[[], Collection[int]] = frozenset
        self._report_standing: Callable[[SharedStudyStanding], None] = lambda standing: None
        self._post_failure: Callable[[BaseException], None] = lambda error: None
        self._end_trials: Callable[[Collection[int]], None] = lambda trials: None
        self._lend: Callable[[float], None] = lambda until_seconds: None
        self._lost = LostTrials()
        self.standing = SharedStudyStanding(
            config.decided_n_trials, n_asked=0, n_left=0, others_run=True
        )
        self._threads = SharingThreads(self)

    @classmethod
    def open(cls, config: StudyConfig, directory: Path) -> SharedRecord:
        """Open the study of `config` in its database, with `directory` as this sweep's folder.

        Raises ConfigError for a database that refuses us or has tables of another version;
        StudyInUseError, StorageError.
        """
        assert config.storage is not None
        database = Database(config.storage)
        database.check()
        return cls(config, directory, database)

    def register(
        self, study_uuid: str, identity: Mapping[str, Any], stored_config: str
    ) -> StoredStudy:
        """Return the study in the database; add it from these values if it is not there."""
        name = self._config.name
        assert name is not None
        if self._reader.copy.n_lines:
            raise ConfigError(
                f"study.name={name}: {self._directory} holds trials of a study that {self.where} "
                "does not have. Name the study.storage that it was begun with, if any, or another "
                "study.name."
            )
        with self._main_database.transaction() as cursor:
            study_tables.add_study(
                cursor, name, study_uuid, identity, stored_config, self._config.decided_n_trials
            )
            self.stored_study = study_tables.find_study(cursor, name)
            assert self.stored_study is not None, "it was added, by this sweep or another"
        return self.stored_study

    def begin(self) -> tuple[Sequence[StoredTrial], Sequence[Any]]:
        """Join the study, and return all its trials and events.

        Lines that earlier sweeps of this folder could not ship are shipped, and all events of the
        database are copied. Raises StorageError, ConfigError.
        """
        study = self.stored_study
        if study is None:
            raise ConfigError(
                f"study.name={self._config.name}: {self.where} holds no study of this name, but "
                f"{self._directory} is one. Name the study.storage that it was begun with."
            )
        check_folder(self._reader.copy, study, self._directory, self.where)
        for folder in make_folder(self._own_path.parent):
            flush_folder(folder)
        ship_unshipped_logs(self._main_database, study, self._directory)
        with self._main_database.transaction() as cursor:
            study_tables.add_sweep(cursor, study.id, self.sweep, this_holder())
        self._pull(self._main_database)
        events = self._reader.copy.events()
        self._log = self._reader.log = SharedEventLog(self._directory, self._own_path, events)
        self._requests = SweepRequestQueue(self._background_database, study, self.sweep)
        trials = [trial for news in self.peer_news() for trial in news.trials]
        return trials, events

    @property
    def log(self) -> SharedEventLog:
        """The event log of this sweep; there from `begin` on."""
        assert self._log is not None, "it has begun"
        return self._log

    @property
    def requests(self) -> SweepRequestQueue:
        """What commands ask this sweep for; there from `begin` on, and read from `start` on."""
        assert self._requests is not None, "it has begun"
        return self._requests

    def start(
        self,
        busy: Callable[[], Collection[int]],
        report_standing: Callable[[SharedStudyStanding], None],
        post_failure: Callable[[BaseException], None],
        end_trials: Callable[[Collection[int]], None],
        lend: Callable[[float], None],
    ) -> None:
        """Start the background threads, which call these functions.

        `busy` returns the trials that run or wait here; they are never taken over. The threads call
        `report_standing` once a second, `post_failure` when they cannot go on, `end_trials` for
        lost trials that did not stop, and `lend`, again and again, with the time at which workers
        must end by themselves.
        """
        self._busy, self._report_standing = busy, report_standing
        self._post_failure, self._end_trials, self._lend = post_failure, end_trials, lend
        with self._main_database.transaction() as cursor:
            study_tables.raise_n_trials(cursor, self._study.id, self._config.decided_n_trials)
            self.requests.begin(cursor)
        self.look()
        self._threads.start()

    # --- asking: the main thread ------------------------------------------------------------------

    def claim(
        self,
        number: int,
        params: Mapping[str, Any],
        *,
        request: str | None = None,
        n_edits: int = 0,
    ) -> TrialClaim:
        """Make trial `number` with these params, if it is the next one. Raises StorageError.

        `request` tells a user's point. `n_edits` is the number of edits that were known when the
        params were chosen.
        """
        if self._is_cut_off():
            return TrialClaim.NONE
        study, trial = self._study.id, StoredTrial(number, params, request)
        try:
            with self._main_database.transaction() as cursor:
                study_tables.lock_study(cursor, study)
                study_tables.claim_trial(cursor, study, self.sweep, trial, n_edits)
                was_made = cursor.fetchone() is not None
                now = study_tables.count_trials_and_edits(cursor, study)
        except DatabaseAwayError:
            self._unanswered_seconds = time.monotonic()
            self._unconfirmed |= {number}
            return TrialClaim.NONE
        if was_made:
            self._unconfirmed -= {number}
            self._once_held.add(number)
            self.log.hold(number, attempt=1)
            return TrialClaim.MADE
        return TrialClaim.NONE if now == (number, n_edits) else TrialClaim.TAKEN

    def record_edit(self, edit: StudyEdited, *, n_edits: int, n_trials: int | None) -> bool:
        """Record an edit that follows `n_edits` others, with the total from now on, if it changes.

        False: other sweeps have edited the study or asked for trials meanwhile, or the database is
        away. Raises StorageError.
        """
        try:
            with self._main_database.transaction() as cursor:
                study_tables.lock_study(cursor, self._study.id)
                return add_edit(cursor, self._study.id, edit, n_edits=n_edits, n_trials=n_trials)
        except DatabaseAwayError:
            self._unanswered_seconds = time.monotonic()
            return False

    def is_left(self, number: int) -> bool:
        """Return whether nobody held the trial at the last look."""
        return number in self._takeable

    def take_over_trial(self) -> int | None:
        """Take over a trial, and return its number; None: there is none to take.

        Its holder has given it up or is gone, or this sweep holds it without knowing. All events
        that other sweeps logged of it are read before the call returns. Raises StorageError.
        """
        if not self.standing.n_left or self._is_cut_off():
            return None
        try:
            with self._main_database.transaction() as cursor:
                taken = study_tables.take_over_trial(
                    cursor,
                    self._study.id,
                    self.sweep,
                    self._gone,
                    excluded={*self._busy(), *self.log.held},
                    unconfirmed=self._unconfirmed,
                )
            if taken is None:
                return None
            self._unconfirmed |= {taken[0]}  # until all its events are read
            self._pull(self._main_database)
        except DatabaseAwayError:
            self._unanswered_seconds = time.monotonic()
            self._unconfirmed |= self._takeable
            return None
        number, attempt = taken
        self._unconfirmed -= {number}
        was_held = number in self._once_held
        self._once_held.add(number)
        self.log.hold(number, attempt, self._reader.copy.events() if was_held else None)
        return number

    def _is_cut_off(self) -> bool:
        """Return whether no trial may begin, since leases are not renewed yet."""
        if self._threads.is_cut_off:
            self._unanswered_seconds = time.monotonic()
            return True
        return False

    def peer_news(self) -> Iterator[PeerNews]:
        """Yield what other sweeps did since the last call."""
        yield from self._reader.news()

    def pull(self) -> bool:
        """Read at once what other sweeps did, and return whether the database answers."""
        try:
            self._pull(self._main_database)
        except DatabaseAwayError:
            self._unanswered_seconds = time.monotonic()
            return False
        return True

    # --- the end ----------------------------------------------------------------------------------

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until database and copy have all that is logged; return whether they do in time."""
        deadline = time.monotonic() + timeout_seconds
        end = self._own_path.stat().st_size
        while self._shipped < end:
            if time.monotonic() >= deadline:
                return False
            time.sleep(DRAIN_STEP_SECONDS)
        try:
            self._pull(self._main_database)
        except DatabaseAwayError:
            return False
        return True

    def close(self) -> None:
        """End the threads, and give back the trials that have not ended.

        Lines that could not be shipped stay in the folder. Raises StorageError when lines could not
        be written.
        """
        self._threads.close()
        try:
            if self._log is not None:
                self._leave()
        finally:
            self._reader.close()
            self._main_database.close()
            self._background_database.close()

    def _leave(self) -> None:
        self.log.close()
        try:
            self.ship()
            with self._background_database.transaction() as cursor:
                study_tables.give_back_trials(cursor, self._study.id, self.sweep)
                end_sweep_lease(cursor, self.sweep)
            self._pull(self._background_database)
        except DatabaseAwayError:
            return  # leases end by themselves, and a later sweep ships the lines in the folder
        self._own_path.unlink()

    # --- the background threads: `SharingDuties` --------------------------------------------------

    @property
    def _study(self) -> StoredStudy:
        assert self.stored_study is not None, "it was registered"
        return self.stored_study

    @property
    def is_away(self) -> bool:
        """Whether the database failed to answer last, or leases must still be renewed."""
        if self._threads.is_cut_off:
            return True
        return self._unanswered_seconds > self._answered_seconds or self.trouble is not None

    @property
    def trouble(self) -> str | None:
        """Why the database takes nothing now; None: it answers."""
        return self._threads.trouble

    def _pull(self, database: Database) -> None:
        self._reader.read(database, self._study.id)

    def ship(self) -> None:
        """Ship what is logged to the database, and write the answers to requests."""
        while lines := ship_lines(
            self._background_database, self._study.id, self.sweep, self._own_path
        ):
            self._shipped = lines[-1].end
            self.log.let_go(line.trial for line in lines if line.is_last and line.trial is not None)
        self.requests.write_answers()

    def look(self) -> None:
        """Read what other sweeps did, and report the standing of the study."""
        begin_seconds = time.monotonic()
        self._pull(self._background_database)
        with self._background_database.transaction() as cursor:
            study = study_tables.find_study(cursor, self._study.name)
            open_trials = study_tables.open_trials(cursor, self._study.id)
            self.requests.look(cursor)
        if study is None:
            raise StorageError(
                f"study.storage={self.where}: study {self._study.name} was removed from it"
            )
        self._answered_seconds, here = begin_seconds, this_boot()
        self._gone = sorted(
            {t.sweep for t in open_trials if t.sweep and t.holder and t.holder.is_gone(here)}
        )
        held = self.log.held
        ours = {*self._busy(), *held}
        self._takeable = frozenset(
            t.number
            for t in open_trials
            if t.number not in ours
            and (
                (t.sweep is None or t.lapsed or t.sweep in self._gone)
                or (t.sweep == self.sweep and t.number in self._unconfirmed)
            )
        )
        others_run = any(t.number not in held for t in open_trials)
        self.standing = SharedStudyStanding(
            study.n_trials, study.n_asked, len(self._takeable), others_run, study.n_edits
        )
        self._report_standing(self.standing)

    def renew(self) -> None:
        """Renew the leases of all held trials; let those go that another sweep has taken."""
        held = self.log.held
        with self._background_database.transaction() as cursor:
            still = study_tables.renew_trial_leases(cursor, self._study.id, self.sweep, held)
            renew_sweep_lease(cursor, self.sweep)
        self.log.let_go(number for number, attempt in held.items() if still.get(number) != attempt)

    def give_up(self) -> None:
        """Let all held trials go."""
        self.log.let_go(self.log.held)

    def end_lost(self) -> None:
        """End lost trials that did not stop by themselves."""
        if overdue := self._lost.overdue([n for n in self._busy() if not self.log.holds(n)]):
            self._end_trials(overdue)

    def set_worker_deadline(self, until_seconds: float) -> None:
        """Let workers run until then without a sign of this process."""
        self._lend(until_seconds)

    def report_failure(self, error: BaseException) -> None:
        """Report why the background threads cannot go on."""
        self._post_failure(error)
