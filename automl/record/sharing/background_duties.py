"""The threads that keep a sweep in touch with the others of its study; no trial waits for them.

Every 0.2 s it ships what the sweep has logged, every second it looks what others have done, and
every 10 s it renews the leases of the sweep's trials. While the database is away it tries again and
again; what is logged meanwhile lies in the sweep's own file. Who could not renew for 50 s of a
lease's 60 gives its trials up, and ends those that do not stop by themselves, so that none runs in
two places: that is seen to by a second thread, since the first may be waiting for a database that
has a question and does not answer. Of a sweep that is stopped no thread sees to anything: its
workers end by themselves shortly before the lease does.

Trials that run here and are another sweep's by now.

They learn it as the answer to their next report, and write a checkpoint. One whose next report is
far is ended after a moment, so that nothing trains here any more when its lease ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from automl.errors import AutoMLError
from automl.record.lease import lease_seconds

SHIP_SECONDS = 0.2
LOOK_SECONDS = 1.0
RENEW_SECONDS = 10.0
GIVE_UP_SECONDS = 50.0
"""Since the last renewal began, by this machine's clock."""
LEND_SECONDS = 57.0
"""So long workers may run by themselves, which look once a second."""
ASK_SECONDS = 5.0
"""So long a process that was stopped, and whose trials nobody may have taken, has to ask first."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharingDuties:
    """What is done, by whom the thread does not know. Each may raise StorageError."""

    ship: Callable[[], None]
    look: Callable[[], None]
    renew: Callable[[], None]
    give_up: Callable[[], None]
    """All trials that are held; needs no database."""
    end_lost: Callable[[], None]
    """Trials that were given up, or taken over, and still run; nor does this."""
    lend: Callable[[float], None]
    """Have workers end by themselves then (`lease_seconds()`); nor does this."""
    broke: Callable[[BaseException], None]
    """Called with what is our own mistake, after which nothing more is asked of the database."""


class SharingThreads:
    """Start it once; `close` ends it."""

    def __init__(self, duties: SharingDuties, clock: Callable[[], float] = lease_seconds) -> None:
        self._duties, self._clock = duties, clock
        self._renewed = self._looked = self._watched = self._woken = clock()
        self._ending = threading.Event()
        self.trouble: str | None = None
        """Why the database takes nothing now; None: it does."""
        self._threads = [
            threading.Thread(target=self._again_and_again, args=(do,), name=name, daemon=True)
            for name, do in (("sharing", self.turn), ("leases", self.watch))
        ]

    @property
    def is_cut_off(self) -> bool:
        """Whether leases could not be renewed for so long that all trials were given up. What were
        begun then would be ended at once."""
        return self._clock() - self._renewed >= GIVE_UP_SECONDS

    def start(self) -> None:
        self._duties.lend(self._renewed + LEND_SECONDS)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Return when both have ended."""
        self._ending.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _again_and_again(self, do: Callable[[], None]) -> None:
        try:
            while not self._ending.wait(SHIP_SECONDS):
                do()
        except BaseException as error:  # noqa: BLE001 - without it leases end, and nobody knows
            self._duties.give_up()
            self._duties.broke(error)

    def watch(self) -> None:
        """Give up what could not be renewed, and end what is lost. Waits for no database."""
        now = self._clock()
        if now - self._watched >= ASK_SECONDS:
            self._woken = now
        self._watched = now
        if self.is_cut_off and now - self._woken >= ASK_SECONDS:
            self._duties.give_up()
        self._duties.end_lost()

    def turn(self) -> None:
        """Do what is due. Waits for the database."""
        try:
            self._renew_if_due()  # first: nothing else may make it late
            self._duties.ship()
            if self._clock() - self._looked >= LOOK_SECONDS:
                self._duties.look()
                self._looked = self._clock()
        except AutoMLError as error:
            if self.trouble is None:
                logger.warning("%s", error)
            self.trouble = str(error)
        else:
            if self.trouble is not None:
                logger.warning("the database answers again: what was kept here is shipped")
            self.trouble = None

    def _renew_if_due(self) -> None:
        begun = self._clock()
        if begun - self._renewed >= RENEW_SECONDS:
            self._duties.renew()
            self._renewed = begun
            self._duties.lend(begun + LEND_SECONDS)


STOP_SECONDS = 5.0
"""How long they may take to stop by themselves."""


class LostTrials:
    """Of one sweep. For one thread."""

    def __init__(self, clock: Callable[[], float] = lease_seconds) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def overdue(self, lost: Collection[int]) -> Collection[int]:
        """Those of the trials lost now that are to be ended; after as long once more, since who was
        just about to begin could not be."""
        now = self._clock()
        self._since = {number: self._since.get(number, now) for number in lost}
        late = {n for n, since in self._since.items() if now - since >= STOP_SECONDS}
        self._since |= dict.fromkeys(late, now)
        return late
