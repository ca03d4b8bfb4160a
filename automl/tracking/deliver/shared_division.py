"""Decides which part of a shared study a sweep delivers, by asking the database once a round.

Leases only tell whose turn it is. A trial has one run because the first process to note a run wins.
A value stands in MLflow once because MLflow takes a repetition as nothing new: hence a process that
takes over begins with all that a trial has reported. `record/sharing/delivery_tables.py` has the
SQL statements.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from automl.errors import AutoMLError, StorageError
from automl.record.lease import HOLDER_LEASE_SECONDS, this_boot, this_holder
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.database import Cursor, Database
from automl.record.sharing.delivery_tables import (
    ClaimedTrialRun,
    DeliveryStanding,
    StoreDeliverer,
    UndeliveredCounts,
)
from automl.tracking.deliver.division import SharedDeliveryJob
from automl.tracking.mlflow_store import ValueNotTakenError

LOOK_SECONDS = 2.0
"""Seconds between two looks at the database."""
CHECK_SECONDS = HOLDER_LEASE_SECONDS / 4
"""Seconds after which a writer checks the lease, in a long round or after a stop."""
SUCCESSION_SECONDS = HOLDER_LEASE_SECONDS + 15.0
"""Seconds without progress after which a delivery ends although others have not delivered theirs.

This holds when all trials have ended. By then a sweep that died has lost its lease, and its part
was delivered here."""
AMONG_OTHERS_SECONDS = 10.0
"""Seconds without progress while trials run: another sweep is there to deliver the rest."""
ENDED = "the lease of this delivery has ended: others may deliver now"

logger = logging.getLogger(__name__)


class SharedStudyDivision:
    """A `DeliveryDivision` for a study that several sweeps share in a database."""

    def __init__(self, job: SharedDeliveryJob, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._clock = job, clock
        self._database = Database(job.url)
        self._own_deliverer: StoreDeliverer | None = None
        self.standing: DeliveryStanding | None = None
        self._dead_sweeps: list[str] = []
        """Sweeps whose delivering process has died on this machine."""
        self._lease_lock = threading.Lock()  # guards the three attributes below
        self._term: int | None = None
        """The term of the lease, None after its end; others may deliver between two terms."""
        self._checked = -float(HOLDER_LEASE_SECONDS)  # for a clock that begins at 0
        self._must_reread = False
        """Whether the log has to be read again."""
        self._last_look = -LOOK_SECONDS
        self._noted_offset = -1
        self._last_counts: UndeliveredCounts | None = None
        self._last_progress = clock()
        """Time when the counts of undelivered trials changed last."""

    # --- a round ---

    def begin_round(self, left: Collection[int]) -> bool:
        must_reread, self._must_reread = self._must_reread, False
        now = self._clock()
        if now - self._last_look >= LOOK_SECONDS:
            self._last_look = now
            try:
                must_reread |= self._look(left)
            except StorageError as error:  # a call that delivers meets it again, and reports it
                logger.info("%s", error)
        return must_reread

    def _look(self, left: Collection[int]) -> bool:
        before = self.standing
        with self._lease_lock, self._database.transaction() as cursor:
            if not (follows := self._attend(cursor)) and self._term is None:
                return False
            deliverer, now = self._deliverer(cursor), this_boot()
            others = delivery_tables.other_deliverers(cursor, deliverer)
            self._dead_sweeps = [sweep for sweep, holder in others if holder.is_gone(now)]
            self.standing = delivery_tables.delivery_standing(cursor, deliverer, self._dead_sweeps)
            unclaimed = (
                delivery_tables.undelivered_trials(cursor, deliverer, self._dead_sweeps)
                if self.standing.elected
                else ()
            )
        is_new = self.standing.elected and not (before and before.elected)
        return is_new or not follows or not set(unclaimed).isdisjoint(left)

    def _attend(self, cursor: Cursor) -> bool:
        """Renew the lease; return whether the term is still the same. The caller holds the lock."""
        checked, deliverer = self._clock(), self._deliverer(cursor)
        if self._job.attends:
            delivery_tables.attend_delivery(cursor, deliverer, this_holder())
        before, self._term = self._term, delivery_tables.delivery_term(cursor, deliverer)
        self._checked = checked
        return self._term is not None and self._term == before

    def claim(self, numbers: Collection[int]) -> Mapping[int, ClaimedTrialRun]:
        if self._term is None:
            raise ValueNotTakenError(ENDED)
        if not numbers:
            return {}
        with self._transaction() as cursor:
            claimed = delivery_tables.claim_deliveries(
                cursor, self._deliverer(cursor), numbers, self._dead_sweeps
            )
        return {each.number: each for each in claimed}

    def check(self) -> None:
        with self._lease_lock:
            if self._clock() - self._checked < CHECK_SECONDS:
                return
            with self._transaction() as cursor:
                follows = self._attend(cursor)
            self._must_reread |= not follows
        if not follows:
            raise ValueNotTakenError(ENDED)

    def note_round(self, done: Collection[int], offset: int) -> None:
        is_further = (
            self.standing is not None and self.standing.elected and offset > self._noted_offset
        )
        if not (done or is_further):
            return
        with self._transaction() as cursor:
            delivery_tables.note_delivered(cursor, self._deliverer(cursor), done)
            if is_further:
                delivery_tables.note_delivered_offset(cursor, self._deliverer(cursor), offset)
        self._noted_offset = max(self._noted_offset, offset if is_further else -1)

    def read_again(self) -> None:
        self._must_reread = True

    # --- runs ---

    def note_run(self, trial: int, run: str) -> str:
        with self._transaction() as cursor:
            return delivery_tables.note_run(cursor, self._deliverer(cursor), trial, run)

    def note_study(self, experiment: str, parent: str) -> str:
        with self._transaction() as cursor:
            kept = delivery_tables.note_parent(cursor, self._deliverer(cursor), experiment, parent)
        if self.standing is not None:
            self.standing = replace(self.standing, experiment=experiment, parent=kept)
        return kept

    def forget(self, parent: str | None) -> None:
        with self._transaction() as cursor:
            delivery_tables.forget_runs(cursor, self._deliverer(cursor), parent)
        self._last_look, self._noted_offset = -LOOK_SECONDS, -1

    # --- the end ---

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        try:
            with self._database.transaction() as cursor:
                rest = delivery_tables.undelivered_counts(cursor, self._deliverer(cursor))
        except StorageError as error:
            return str(error) if self._has_stalled(None) else None
        if not waits and rest.upto >= offset and (rest.n_open or not rest.n_ended):
            return ""
        if not self._has_stalled(rest):
            return None
        return f"{rest.n_ended} trials are left to other sweeps, which do not deliver them now"

    def _has_stalled(self, rest: UndeliveredCounts | None) -> bool:
        now = self._clock()
        if rest is not None and rest != self._last_counts:
            self._last_counts, self._last_progress = rest, now
        among_others = rest is not None and rest.n_open
        patience = AMONG_OTHERS_SECONDS if among_others else SUCCESSION_SECONDS
        return now - self._last_progress >= patience

    def end(self) -> Mapping[int, str]:
        try:
            with self._database.transaction() as cursor:
                deliverer = self._deliverer(cursor)
                if self._job.attends:
                    delivery_tables.resign_as_deliverer(cursor, deliverer.study, deliverer.sweep)
                return delivery_tables.noted_runs(cursor, deliverer)
        except StorageError as error:
            logger.warning("%s", error)  # the lease ends by itself
            return {}
        finally:
            self._database.close()

    # --- the database ---

    def _deliverer(self, cursor: Cursor) -> StoreDeliverer:
        if self._own_deliverer is None:
            found = study_tables.find_study(cursor, self._job.study)
            if found is None:
                raise StorageError(f"{self._database.where} has no study {self._job.study}")
            self._own_deliverer = StoreDeliverer(found.id, self._job.store, self._job.sweep)
        return self._own_deliverer

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """Yield a cursor in a transaction. Raise ValueNotTakenError when the database fails."""
        try:
            with self._database.transaction() as cursor:
                yield cursor
        except AutoMLError as error:
            raise ValueNotTakenError(str(error)) from error
