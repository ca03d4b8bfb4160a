"""The part of a shared study that a sweep delivers: what the database says, asked once a round.

Leases only tell whose turn it is. That a trial has one run is kept by who notes it first, and that
a value stands there once by MLflow, which takes the same again as nothing new; so whoever takes
over begins with all that a trial has reported. `record/sharing/deliveries.py` has the statements.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from automl.errors import AutoMLError, StorageError
from automl.record.lease import LEASE_SECONDS, this_boot, this_holder
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
CHECK_SECONDS = LEASE_SECONDS / 4
"""In a long round the lease is looked at so often, and at once after a stop of so long."""
SUCCESSION_SECONDS = LEASE_SECONDS + 15.0
"""Where all trials have ended, what others have not delivered is waited for so long while nothing
moves: by then who died has lost its lease, and it was delivered here."""
AMONG_OTHERS_SECONDS = 10.0
"""Where trials still run, somebody else is there to deliver the rest."""
ENDED = "the lease of this delivery has ended: others may deliver now"

logger = logging.getLogger(__name__)


class SharedStudyDivision:
    """See `DeliveryDivision`."""

    def __init__(self, job: SharedDeliveryJob, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._clock = job, clock
        self._database = Database(job.url)
        self._known: StoreDeliverer | None = None
        self.standing: DeliveryStanding | None = None
        self._gone: list[str] = []
        """Sweeps whose delivering process has died on this machine."""
        self._attending = threading.Lock()  # guards the three below
        self._term: int | None = None
        """Others may have delivered between two of them; None: its lease has ended."""
        self._checked = -float(LEASE_SECONDS)  # for a clock that begins at 0
        self._anew = False
        """The log is to be read again."""
        self._looked = -LOOK_SECONDS
        self._upto = -1
        self._rest: UndeliveredCounts | None = None
        self._moved = clock()
        """When what is left has changed last."""

    # --- a round ---

    def begin_round(self, left: Collection[int]) -> bool:
        anew, self._anew = self._anew, False
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            try:
                anew |= self._look(left)
            except StorageError as error:  # who has something to deliver is told again, and tells
                logger.info("%s", error)
        return anew

    def _look(self, left: Collection[int]) -> bool:
        before = self.standing
        with self._attending, self._database.transaction() as cursor:
            if not (follows := self._attend(cursor)) and self._term is None:
                return False
            me, now = self._me(cursor), this_boot()
            others = delivery_tables.deliverers(cursor, me)
            self._gone = [sweep for sweep, holder in others if holder.is_gone(now)]
            self.standing = delivery_tables.delivery_standing(cursor, me, self._gone)
            of_nobody = (
                delivery_tables.undelivered_trials(cursor, me, self._gone)
                if self.standing.elected
                else ()
            )
        is_new = self.standing.elected and not (before and before.elected)
        return is_new or not follows or not set(of_nobody).isdisjoint(left)

    def _attend(self, cursor: Cursor) -> bool:
        """Whether the term is the one of before. The lock is held."""
        checked, me = self._clock(), self._me(cursor)
        if self._job.attends:
            delivery_tables.attend_delivery(cursor, me, this_holder())
        before, self._term = self._term, delivery_tables.delivery_term(cursor, me)
        self._checked = checked
        return self._term is not None and self._term == before

    def claim(self, numbers: Collection[int]) -> Mapping[int, ClaimedTrialRun]:
        if self._term is None:
            raise ValueNotTakenError(ENDED)
        if not numbers:
            return {}
        with self._told() as cursor:
            claimed = delivery_tables.claim(cursor, self._me(cursor), numbers, self._gone)
        return {each.number: each for each in claimed}

    def check(self) -> None:
        with self._attending:
            if self._clock() - self._checked < CHECK_SECONDS:
                return
            with self._told() as cursor:
                follows = self._attend(cursor)
            self._anew |= not follows
        if not follows:
            raise ValueNotTakenError(ENDED)

    def note_round(self, done: Collection[int], offset: int) -> None:
        is_further = self.standing is not None and self.standing.elected and offset > self._upto
        if not (done or is_further):
            return
        with self._told() as cursor:
            delivery_tables.note_done(cursor, self._me(cursor), done)
            if is_further:
                delivery_tables.note_upto(cursor, self._me(cursor), offset)
        self._upto = max(self._upto, offset if is_further else -1)

    def read_again(self) -> None:
        self._anew = True

    # --- runs ---

    def note_run(self, trial: int, run: str) -> str:
        with self._told() as cursor:
            return delivery_tables.note_run(cursor, self._me(cursor), trial, run)

    def note_study(self, experiment: str, parent: str) -> str:
        with self._told() as cursor:
            kept = delivery_tables.note_parent(cursor, self._me(cursor), experiment, parent)
        if self.standing is not None:
            self.standing = replace(self.standing, experiment=experiment, parent=kept)
        return kept

    def forget(self, parent: str | None) -> None:
        with self._told() as cursor:
            delivery_tables.forget_runs(cursor, self._me(cursor), parent)
        self._looked, self._upto = -LOOK_SECONDS, -1

    # --- the end ---

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        try:
            with self._database.transaction() as cursor:
                rest = delivery_tables.undelivered_counts(cursor, self._me(cursor))
        except StorageError as error:
            return str(error) if self._stands_still(None) else None
        if not waits and rest.upto >= offset and (rest.n_open or not rest.n_ended):
            return ""
        if not self._stands_still(rest):
            return None
        return f"{rest.n_ended} trials are left to other sweeps, which do not deliver them now"

    def _stands_still(self, rest: UndeliveredCounts | None) -> bool:
        now = self._clock()
        if rest is not None and rest != self._rest:
            self._rest, self._moved = rest, now
        among_others = rest is not None and rest.n_open
        patience = AMONG_OTHERS_SECONDS if among_others else SUCCESSION_SECONDS
        return now - self._moved >= patience

    def end(self) -> Mapping[int, str]:
        try:
            with self._database.transaction() as cursor:
                me = self._me(cursor)
                if self._job.attends:
                    delivery_tables.resign(cursor, me.study, me.sweep)
                return delivery_tables.runs(cursor, me)
        except StorageError as error:
            logger.warning("%s", error)  # the lease ends by itself
            return {}
        finally:
            self._database.close()

    # --- the database ---

    def _me(self, cursor: Cursor) -> StoreDeliverer:
        if self._known is None:
            found = study_tables.find_study(cursor, self._job.study)
            if found is None:
                raise StorageError(f"{self._database.where} has no study {self._job.study}")
            self._known = StoreDeliverer(found.id, self._job.store, self._job.sweep)
        return self._known

    @contextmanager
    def _told(self) -> Iterator[Cursor]:
        """A transaction; what the database does not take is told as what MLflow does not."""
        try:
            with self._database.transaction() as cursor:
                yield cursor
        except AutoMLError as error:
            raise ValueNotTakenError(str(error)) from error
