"""Delivers a study that several sweeps share: the elected one writes runs, each uploads its files.

The database is asked every two seconds. A lease only tells whose turn it is. A trial has one run
because the first process to note a run wins. A value stands in MLflow once because MLflow takes a
repetition as nothing new: hence a sweep that is elected begins with all that a trial has reported.
`record/sharing/delivery_tables.py` has the SQL statements.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from automl.config import KeepCheckpoints
from automl.errors import AutoMLError, StorageError
from automl.record.lease import HOLDER_LEASE_SECONDS, this_boot
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.database import Cursor, Database
from automl.record.sharing.delivery_tables import (
    DeliveryStanding,
    PendingFiles,
    StoreDeliverer,
    UndeliveredCounts,
)
from automl.tracking.deliver.artifacts import files_update
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations, LineCounter
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.deliver.study_delivery import EventLogDelivery, RunWriter
from automl.tracking.mlflow_store import NotDeliveredError, RunGoneError
from automl.tracking.view.run_update import StudyRef
from automl.tracking.view.study_run import newest_study

LOOK_SECONDS = 2.0
"""Seconds between two looks at the database."""
CHECK_SECONDS = HOLDER_LEASE_SECONDS / 4
"""Seconds after which a writer checks the lease, in a long round or after a stop."""
BEHIND_SECONDS = 30.0
"""Seconds after which a sweep whose copy of the log lacks lines is not elected: it is stopped."""
SUCCESSION_SECONDS = HOLDER_LEASE_SECONDS + 15.0
"""Seconds without progress after which a delivery ends: a sweep that died has lost its lease."""
AMONG_OTHERS_SECONDS = 10.0
"""Seconds without progress after which a delivery ends that has nothing of its own left."""
ENDED = "the lease of this delivery has ended: others may deliver now"

logger = logging.getLogger(__name__)


class SharedConfirmations(DeliveryConfirmations):
    """The confirmations of a shared study: the database decides, the file is this folder's copy."""

    is_shared = True

    def connect(
        self,
        *,
        url: str,
        study: str,
        sweep: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the database, by the fields of a `SharedDeliveryJob`, before any other method."""
        self.database, self._clock = Database(url), clock
        self._study_name, self.sweep = study, sweep
        self._deliverer: StoreDeliverer | None = None
        self._lock = threading.Lock()  # guards the two attributes below
        self.term: int | None = None
        """The term in which this sweep is elected; None while it is not."""
        self._renewed = 0.0

    @contextmanager
    def transaction(self) -> Iterator[tuple[Cursor, StoreDeliverer]]:
        """Run the block in a transaction. Raise NotDeliveredError when the database fails."""
        try:
            if self._deliverer is None:
                self._deliverer = self._find_deliverer()
            with self.database.transaction() as cursor:
                yield cursor, self._deliverer
        except AutoMLError as error:
            raise NotDeliveredError(str(error)) from error

    def _find_deliverer(self) -> StoreDeliverer:
        """Return this sweep as a deliverer to its store.

        The store has the study's own run if a sweep has delivered to it, under whatever address.
        """
        with self.database.transaction() as cursor:
            found = study_tables.find_study(cursor, self._study_name)
            if found is None:
                raise StorageError(f"{self.database.where} has no study {self._study_name}")
            parents = delivery_tables.noted_parents(cursor, found.id)
        runs, study = self._runs, self._study
        experiment = runs.find_study(study, parents) or runs.open_experiment(study.name)
        return StoreDeliverer(found.id, runs.store_id(experiment), self.sweep)

    def delivery(
        self, log: Path, runs: MlflowRuns, keep: KeepCheckpoints, study: StudyRef | None
    ) -> SharedStudyDelivery:
        """Return this sweep's part of the delivery of the event log."""
        self._study = study or newest_study(log) or StudyRef("", self._study_name)
        self._runs = runs
        return SharedStudyDelivery(log, self, runs, keep, self._study, self._clock)

    def set_term(self, term: int | None, renewed: float) -> None:
        with self._lock:
            self.term, self._renewed = term, renewed

    def check(self) -> None:
        with self._lock:
            if self.term is None:
                raise NotDeliveredError(ENDED)
            if self._clock() - self._renewed >= CHECK_SECONDS:
                begun = self._clock()
                with self.transaction() as (cursor, me):
                    if not delivery_tables.renew_lease(cursor, me, self.term):
                        self.term = None
                        raise NotDeliveredError(ENDED)
                self._renewed = begun

    def begin(self, study: str, standing: DeliveryStanding) -> None:
        """Take over what the database knows, to deliver all that is not noted as done."""
        with self.transaction() as (cursor, me):
            runs = delivery_tables.noted_runs(cursor, me)
        self._clear()
        self.copy(study, standing, {trial: run for trial, (run, _) in runs.items()})
        self.completed = {trial for trial, (_, is_done) in runs.items() if is_done}

    def copy(self, study: str, standing: DeliveryStanding, runs: Mapping[int, str]) -> None:
        """Note in the file what the database has."""
        if standing.experiment is not None and standing.parent is not None:
            super().note_study(study, standing.experiment, standing.parent)
        for trial, run in runs.items():
            if self.runs.get(trial) != run:
                super().note_run(trial, run)

    def note_run(self, trial: int, run_id: str) -> str:
        with self.transaction() as (cursor, me):
            kept = delivery_tables.note_run(cursor, me, trial, run_id)
        return super().note_run(trial, kept)

    def note_study(self, study: str, experiment: str, parent: str) -> str:
        with self.transaction() as (cursor, me):
            kept = delivery_tables.note_parent(cursor, me, experiment, parent)
        return super().note_study(study, experiment, kept)

    def note_completed(self, trials: Collection[int]) -> None:
        if trials:
            with self.transaction() as (cursor, me):
                delivery_tables.note_delivered(cursor, me, trials)

    def confirm(self, offset: int) -> None:
        if self.term is not None and offset > self.offset:
            with self.transaction() as (cursor, me):
                delivery_tables.note_delivered_offset(cursor, me, offset)
        super().confirm(offset)

    def reset(self) -> None:
        with self.transaction() as (cursor, me):
            delivery_tables.forget_runs(cursor, me, self.parent)
        self._clear()


class SharedStudyDelivery:
    """The part of one sweep in the delivery of a shared study; used as an `EventLogDelivery`."""

    def __init__(
        self,
        log: Path,
        confirmed: SharedConfirmations,
        runs: MlflowRuns,
        keep: KeepCheckpoints,
        study: StudyRef,
        clock: Callable[[], float],
    ) -> None:
        self._log, self._confirmed, self._runs, self._keep = log, confirmed, runs, keep
        self._study, self._clock = study, clock
        self._writer = RunWriter(runs, confirmed, log.parent)
        self.note_taken: Callable[[], None] = lambda: None
        """Called when MLflow has taken a trial's update."""
        self._elected: EventLogDelivery | None = None
        """Writes the runs while this sweep is elected."""
        self._standing: DeliveryStanding | None = None
        """The state at the last look; None: the database has not answered yet."""
        self._files: Sequence[PendingFiles] = ()
        self._lines = LineCounter(log)
        self._last_look = -LOOK_SECONDS
        self._behind_since: float | None = None
        """When the copy of the log began to lack lines that the database had at the last look."""
        self._last_counts: UndeliveredCounts | None = None
        self._last_progress = clock()
        """When the counts of undelivered trials changed last."""
        self._end: int | None = None
        """The size of the log when this sweep first wanted to end."""

    def read(self) -> bool:
        """Look at the database if that is due, and take new events from the log if elected.

        Return whether there may be more.
        """
        if self._clock() - self._last_look >= LOOK_SECONDS:
            try:
                self._look()
            except NotDeliveredError as error:  # `deliver` meets it again, and reports it
                logger.info("%s", error)
        return self._elected is not None and self._elected.read()

    def _look(self) -> None:
        self._last_look = now = self._clock()
        confirmed, here = self._confirmed, this_boot()
        is_whole = self._standing is None or self._lines.count() >= self._standing.n_events
        behind_since = self._behind_since = None if is_whole else self._behind_since or now
        with confirmed.transaction() as (cursor, me):
            delivery_tables.attend_delivery(cursor, me)
            if behind_since is not None and now - behind_since >= BEHIND_SECONDS:
                delivery_tables.end_lease(cursor, me, me.sweep)
            else:
                other = delivery_tables.elected_deliverer(cursor, me)
                if other is not None and other[1].is_gone(here):
                    delivery_tables.end_lease(cursor, me, other[0])
                delivery_tables.stand_for_election(cursor, me)
            standing = delivery_tables.delivery_standing(cursor, me)
            self._files = delivery_tables.pending_files(
                cursor, me, of_others=standing.term is not None
            )
        self._standing = standing
        is_same_term = standing.term == confirmed.term
        confirmed.set_term(standing.term, now)
        if standing.term is None:
            self._elected = None
            confirmed.copy(self._study.uuid, standing, {f.trial: f.run for f in self._files})
            confirmed.confirm(min(standing.upto, self._log_size()))
        elif self._elected is None or not is_same_term or standing.parent != confirmed.parent:
            self._elected = None  # until all that the database knows is here
            confirmed.begin(self._study.uuid, standing)
            arguments = self._log, confirmed, self._runs, self._keep, 0, self._study
            self._elected = EventLogDelivery(*arguments, standing.n_asked)
            self._elected.note_taken = self.note_taken

    def deliver(self, *, everything: bool = True) -> None:
        """Write the runs if elected, and upload the files that are due.

        Raise NotDeliveredError or OSError when MLflow does not take them now: call again.
        """
        if self._standing is None:
            raise NotDeliveredError("the database of the study does not answer")
        if self._elected is not None:
            self._elected.deliver(everything=everything)
        if self._confirmed.experiment is not None:
            self._upload_files(self._confirmed.experiment)

    def _upload_files(self, experiment: str) -> None:
        files, self._files = self._files, ()  # each look finds those that are left
        here, uploaded = this_boot(), []
        gone = {d for d in {file.deliverer for file in files} if d is None or d.is_gone(here)}
        try:
            for file in files:
                # Others upload what they hold. This sweep sees their trials if it is elected.
                if file.is_due and (file.is_own or file.deliverer in gone):
                    folder, uuid = self._log.parent, self._study.uuid
                    update = files_update(folder, file.trial, uuid, self._keep)
                    self._writer.store_files(experiment, file.run, update)
                    uploaded.append(file.trial)
        except RunGoneError as error:
            self._confirmed.reset()
            raise NotDeliveredError(f"runs have vanished: {error}") from error
        finally:
            if uploaded:
                with self._confirmed.transaction() as (cursor, me):
                    delivery_tables.note_files(cursor, me, uploaded)

    @property
    def n_left(self) -> int:
        """Return how many updates MLflow lacks of what this sweep has read to write itself."""
        return 0 if self._elected is None else self._elected.n_left

    @property
    def offset(self) -> int:
        """Return the byte of the log before which MLflow has all events."""
        return self._confirmed.offset

    # --- the end ---

    def may_end(self) -> str | None:
        """Return a text if the delivery may end, None if it has to ask again.

        The text says which trials are left to others, and is empty if none are.
        """
        end = self._end = self._log_size() if self._end is None else self._end
        try:
            with self._confirmed.transaction() as (cursor, me):
                rest = delivery_tables.undelivered_counts(cursor, me)
        except NotDeliveredError as error:
            return str(error) if self._has_stalled(None) else None
        if rest.n_open and not rest.n_own and (self._elected is None or rest.upto >= end):
            return ""  # others are there to deliver the rest
        if not rest.n_open and not rest.n_ended and rest.upto >= end:
            return ""
        if not self._has_stalled(rest):
            return None
        return f"{rest.n_ended} trials are left to other sweeps, which do not deliver them now"

    def _has_stalled(self, rest: UndeliveredCounts | None) -> bool:
        now = self._clock()
        if rest is not None and rest != self._last_counts:
            self._last_counts, self._last_progress = rest, now
        among_others = rest is not None and rest.n_open and not rest.n_own
        patience = AMONG_OTHERS_SECONDS if among_others else SUCCESSION_SECONDS
        return now - self._last_progress >= patience

    def end(self) -> None:
        """Leave the rest to other sweeps, and note all known runs in `events.delivered`."""
        try:
            with self._confirmed.transaction() as (cursor, me):
                delivery_tables.leave_delivery(cursor, me)
                standing = delivery_tables.delivery_standing(cursor, me)
                runs = delivery_tables.noted_runs(cursor, me)
            known = {trial: run for trial, (run, _) in runs.items()}
            self._confirmed.copy(self._study.uuid, standing, known)
            self._confirmed.set_term(None, self._clock())
            self._confirmed.confirm(min(standing.upto, self._log_size()))
        except NotDeliveredError as error:
            logger.warning("%s", error)  # the lease ends by itself
        finally:
            self._confirmed.database.close()

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0
