"""A study that several sweeps work on, as one of them sees it.

The main thread asks (`claim`, `take_left`) and hears (`heard`); the keeper's thread does the rest
(`keeper.py`); what the database is told stands in `study_tables.py`.
"""

from __future__ import annotations

import enum
import queue
import threading
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
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.background_duties import LostTrials, SharingDuties, SharingThreads
from automl.record.sharing.database import Database, DatabaseAwayError
from automl.record.sharing.delivery_tables import StoreDeliverer
from automl.record.sharing.shared_log import (
    OUTBOX,
    SharedEventLog,
    SharedLogCopy,
    WrittenEvent,
    read,
    ship_lines,
)
from automl.record.sharing.study_fetch import MAX_EVENTS, check_place, ship_left
from automl.record.sharing.study_tables import StoredStudy
from automl.record.study_files import StudyFiles

DRAIN_STEP_SECONDS = 0.05


class TrialClaim(enum.Enum):
    """What came of asking for a trial."""

    MADE = "made"
    TAKEN = "taken"
    """Others have made trials meanwhile."""
    NONE = "none"
    """The study has all its trials, or the database is away."""


@dataclass(frozen=True)
class PeerNews:
    """What others did, in order: first these trials, then these events."""

    trials: Sequence[tuple[int, Mapping[str, Any]]]
    events: Sequence[WrittenEvent]


@dataclass(frozen=True)
class SharedStudyStanding:
    """How the study stands in the database."""

    n_trials: int
    n_asked: int
    """Trials that it has."""
    n_left: int
    """Trials that nobody holds and this sweep may take."""
    others_run: bool
    """Trials have not ended that this sweep does not hold."""


class SharedRecord:
    """Get one from `open`; `close` gives back what is left."""

    def __init__(self, config: StudyConfig, directory: Path, database: Database) -> None:
        assert config.name is not None
        assert config.storage is not None
        self._config, self._directory = config, directory
        self.where = database.where
        self.sweep = uuid.uuid4().hex
        self._asking, self._keeping = database, Database(config.storage)
        """The main thread's, and the keeper's."""
        with database.transaction() as cursor:
            study_tables.make_tables(cursor, self.where)
            self.found: StoredStudy | None = study_tables.find_study(cursor, config.name)
            """None: the database has no such study yet."""
        self._copy = SharedLogCopy(StudyFiles(directory).events)
        self._pulling = threading.Lock()
        """Guards the copy and the two below."""
        self._n_trials_heard = 0
        self._heard: queue.SimpleQueue[PeerNews] = queue.SimpleQueue()
        self._log: SharedEventLog | None = None
        self._own_path = directory / OUTBOX / f"{self.sweep}.log"
        self._shipped = 0
        """Bytes of this sweep's own log that the database has looked at."""
        self._asked_in_vain, self._answered = 0.0, 0.0
        """When (monotonic) the database did not answer last, and since when it surely has."""
        self._gone: Sequence[str] = ()
        """Sweeps of this machine that have died."""
        self._once_held: set[int] = set()
        self._left: frozenset[int] = frozenset()
        """Trials that nobody held, and this sweep might have taken."""
        self._doubted: frozenset[int] = frozenset()
        """Of those that this sweep has asked for in vain: the database may have made or given them,
        and the answer been lost. Set by the main thread alone."""
        self._delivers: StoreDeliverer | None = None
        """None: it delivers nothing to MLflow."""
        self._busy: Callable[[], Collection[int]] = frozenset
        self._stands: Callable[[SharedStudyStanding], None] = lambda standing: None
        self._broke: Callable[[BaseException], None] = lambda error: None
        self._end: Callable[[Collection[int]], None] = lambda trials: None
        self._lend: Callable[[float], None] = lambda until_seconds: None
        self._lost = LostTrials()
        self.standing = SharedStudyStanding(config.total, n_asked=0, n_left=0, others_run=True)
        duties = SharingDuties(
            *(self._ship, self._look, self._renew, self._give_up, self._end_lost),
            lend=lambda until_seconds: self._lend(until_seconds),
            broke=lambda error: self._broke(error),
        )
        self._keeper = SharingThreads(duties)

    @classmethod
    def open(cls, config: StudyConfig, directory: Path) -> SharedRecord:
        """Raises ConfigError for a database that refuses, or is another automl's; StudyInUseError,
        StorageError."""
        assert config.storage is not None
        database = Database(config.storage)
        database.check()
        return cls(config, directory, database)

    def register(
        self, study_uuid: str, identity: Mapping[str, Any], stored_config: str
    ) -> StoredStudy:
        """The study in the database, made from these if it is not there. Raises StorageError."""
        name = self._config.name
        assert name is not None
        if self._copy.n_lines:
            raise ConfigError(
                f"study.name={name}: {self._directory} holds trials of a study that {self.where} "
                "does not have. Name the study.storage that it was begun with, if any, or another "
                "study.name."
            )
        with self._asking.transaction() as cursor:
            study_tables.add_study(
                cursor, name, study_uuid, identity, stored_config, self._config.total
            )
            self.found = study_tables.find_study(cursor, name)
            assert self.found is not None, "it was added, by whomever"
        return self.found

    def begin(self) -> tuple[Sequence[tuple[int, Mapping[str, Any]]], Sequence[Any]]:
        """Take part: what earlier sweeps of this folder had not shipped is, all that the database
        has is copied. Returns all trials and events. Raises StorageError, ConfigError."""
        study = self.found
        if study is None:
            raise ConfigError(
                f"study.name={self._config.name}: {self.where} holds no study of this name, but "
                f"{self._directory} is one. Name the study.storage that it was begun with."
            )
        check_place(self._copy, study, self._directory, self.where)
        for folder in make_folder(self._own_path.parent):
            flush_folder(folder)
        ship_left(self._asking, study, self._directory)
        with self._asking.transaction() as cursor:
            study_tables.add_sweep(cursor, study.id, self.sweep, this_holder())
        self._pull(self._asking)
        events = self._copy.events()
        self._log = SharedEventLog(self._directory, self._own_path, events)
        trials = [trial for heard in self.heard() for trial in heard.trials]
        return trials, events

    @property
    def log(self) -> SharedEventLog:
        """From `begin` on."""
        assert self._log is not None, "it has begun"
        return self._log

    def start(
        self,
        busy: Callable[[], Collection[int]],
        stands: Callable[[SharedStudyStanding], None],
        broke: Callable[[BaseException], None],
        end: Callable[[Collection[int]], None],
        lend: Callable[[float], None],
    ) -> None:
        """From now on the keeper works: in its threads `stands` hears once a second how the study
        stands, `broke` is called where it cannot go on, `end` for trials that are lost and did not
        stop, and `lend`, again and again, with when workers are to end by themselves. `busy` are
        the trials that run or wait here, which are not taken over, whoever holds them."""
        self._busy, self._stands, self._broke = busy, stands, broke
        self._end, self._lend = end, lend
        with self._asking.transaction() as cursor:
            study_tables.raise_n_trials(cursor, self._study.id, self._config.total)
        self._look()
        self._keeper.start()

    # --- asking: the main thread ------------------------------------------------------------------

    def claim(self, number: int, params: Mapping[str, Any]) -> TrialClaim:
        """Have trial `number` with these params, if it is the next one. Raises StorageError."""
        if self._is_cut_off():
            return TrialClaim.NONE
        study = self._study.id
        try:
            with self._asking.transaction() as cursor:
                study_tables.lock_study(cursor, study)
                study_tables.claim(cursor, study, self.sweep, number, params)
                made = cursor.fetchone() is not None
                n_asked = number if made else study_tables.n_asked(cursor, study)
        except DatabaseAwayError:
            self._asked_in_vain = time.monotonic()
            self._doubted |= {number}
            return TrialClaim.NONE
        if made:
            self._doubted -= {number}
            self._once_held.add(number)
            self.log.hold(number, attempt=1)
            return TrialClaim.MADE
        return TrialClaim.TAKEN if n_asked > number else TrialClaim.NONE

    def take_left(self) -> int | None:
        """The number of a trial that nobody holds any more, or that this sweep holds and has not
        heard of; it is this sweep's now, and what it did elsewhere was heard. None: there is none.
        Raises StorageError."""
        if not self.standing.n_left or self._is_cut_off():
            return None
        try:
            with self._asking.transaction() as cursor:
                taken = study_tables.take_over(
                    *(cursor, self._study.id, self.sweep, self._gone),
                    but={*self._busy(), *self.log.held},
                    doubted=self._doubted,
                )
            if taken is None:
                return None
            self._doubted |= {taken[0]}  # until all was heard of it
            self._pull(self._asking)
        except DatabaseAwayError:
            self._asked_in_vain = time.monotonic()
            self._doubted |= self._left
            return None
        number, attempt = taken
        self._doubted -= {number}
        again = number in self._once_held
        self._once_held.add(number)
        self.log.hold(number, attempt, self._copy.events() if again else None)
        return number

    def _is_cut_off(self) -> bool:
        """Whether nothing may be begun: the database may be back, but not yet our leases."""
        if self._keeper.is_cut_off:
            self._asked_in_vain = time.monotonic()
            return True
        return False

    def heard(self) -> Iterator[PeerNews]:
        """What others did since the last call."""
        while not self._heard.empty():
            yield self._heard.get()

    def pull(self) -> bool:
        """Hear at once what others did; whether the database answers. Raises StorageError."""
        try:
            self._pull(self._asking)
        except DatabaseAwayError:
            self._asked_in_vain = time.monotonic()
            return False
        return True

    # --- the end ----------------------------------------------------------------------------------

    def drain(self, timeout_seconds: float) -> bool:
        """Whether the database, and the copy, have all that this sweep has logged by now. Raises
        StorageError."""
        deadline = time.monotonic() + timeout_seconds
        end = self._own_path.stat().st_size
        while self._shipped < end:
            if time.monotonic() >= deadline:
                return False
            time.sleep(DRAIN_STEP_SECONDS)
        try:
            self._pull(self._asking)
        except DatabaseAwayError:
            return False
        return True

    def close(self) -> None:
        """End the thread, and give back the trials that have not ended. What could not be shipped
        stays in the folder. Raises StorageError when it could not be written."""
        self._keeper.close()
        try:
            if self._log is not None:
                self._leave()
        finally:
            self._copy.close()
            self._asking.close()
            self._keeping.close()

    def _leave(self) -> None:
        self.log.close()
        try:
            self._ship()
            with self._keeping.transaction() as cursor:
                study_tables.give_back(cursor, self._study.id, self.sweep)
                delivery_tables.resign(cursor, self._study.id, self.sweep)
            self._pull(self._keeping)
        except DatabaseAwayError:
            return  # leases end by themselves, and what is in the folder is shipped from there
        self._own_path.unlink()

    # --- delivery to MLflow -----------------------------------------------------------------------

    def attend(self, store: str) -> None:
        """From now on this sweep delivers what it holds to that store. Raises StorageError."""
        self._delivers = StoreDeliverer(self._study.id, store, self.sweep)
        self._attend()

    # --- the keeper's thread ----------------------------------------------------------------------

    @property
    def _study(self) -> StoredStudy:
        assert self.found is not None, "it was registered"
        return self.found

    @property
    def is_away(self) -> bool:
        """Whether the database did not answer last, or leases are still to be renewed."""
        if self._keeper.is_cut_off:
            return True
        return self._asked_in_vain > self._answered or self.trouble is not None

    @property
    def trouble(self) -> str | None:
        """Why the database takes nothing now."""
        return self._keeper.trouble

    def _ship(self) -> None:
        while lines := ship_lines(self._keeping, self._study.id, self.sweep, self._own_path):
            self._shipped = lines[-1].end
            self.log.let_go(line.trial for line in lines if line.is_last and line.trial is not None)

    def _pull(self, database: Database) -> None:
        with self._pulling:
            while True:
                with database.transaction() as cursor:
                    # Events first: each has its trial in the table by then.
                    stored = study_tables.events_after(
                        cursor, self._study.id, self._copy.n_lines, MAX_EVENTS
                    )
                    trials = study_tables.trials_from(cursor, self._study.id, self._n_trials_heard)
                self._take(stored, trials)
                if len(stored) < MAX_EVENTS:
                    return

    def _take(
        self,
        stored: Sequence[study_tables.StoredEvent],
        trials: Sequence[tuple[int, Mapping[str, Any]]],
    ) -> None:
        if trials:
            self._n_trials_heard = trials[-1][0] + 1
        if stored:
            self._copy.add(stored)
        events: Sequence[WrittenEvent] = ()
        if self._log is not None:  # else all are read together, from the copy
            events = [*read(event for event in stored if event.sweep != self.sweep)]
            self._log.hear(taken.event for taken in events)
        if trials or events:
            self._heard.put(PeerNews(trials, events))

    def _look(self) -> None:
        begun = time.monotonic()
        self._pull(self._keeping)
        with self._keeping.transaction() as cursor:
            study = study_tables.find_study(cursor, self._study.name)
            opened = study_tables.open_trials(cursor, self._study.id)
        if study is None:
            raise StorageError(
                f"study.storage={self.where}: study {self._study.name} was removed from it"
            )
        self._answered, now = begun, this_boot()
        self._gone = sorted(
            {t.sweep for t in opened if t.sweep and t.holder and t.holder.is_gone(now)}
        )
        held = self.log.held
        ours = {*self._busy(), *held}
        self._left = frozenset(
            t.number for t in opened if t.number not in ours and self._may_take(t)
        )
        others = any(t.number not in held for t in opened)
        self._set(SharedStudyStanding(study.n_trials, study.n_asked, len(self._left), others))

    def _may_take(self, trial: study_tables.OpenTrial) -> bool:
        if trial.sweep == self.sweep and trial.number in self._doubted:
            return True
        return trial.sweep is None or trial.lapsed or trial.sweep in self._gone

    def _renew(self) -> None:
        held = self.log.held
        with self._keeping.transaction() as cursor:
            still = study_tables.renew(cursor, self._study.id, self.sweep, held)
        self.log.let_go(number for number, attempt in held.items() if still.get(number) != attempt)
        self._attend()

    def _attend(self) -> None:
        if self._delivers is not None:
            with self._keeping.transaction() as cursor:
                delivery_tables.attend_delivery(cursor, self._delivers, this_holder())

    def _give_up(self) -> None:
        self.log.let_go(self.log.held)

    def _end_lost(self) -> None:
        if late := self._lost.overdue([n for n in self._busy() if not self.log.holds(n)]):
            self._end(late)

    def _set(self, standing: SharedStudyStanding) -> None:
        self.standing = standing
        self._stands(standing)
