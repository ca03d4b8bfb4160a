"""The two threads that keep a sweep in touch with the other sweeps of its study.

The first thread ships the sweep's log lines every 0.2 s, reads the news of other sweeps every
second, and renews the leases of the sweep's trials every 10 s. While the database is away it tries
again and again; lines logged meanwhile lie in the sweep's own file. No trial waits for the threads.

A lease lasts 60 s. A sweep that could not renew for 50 s gives its trials up, so that none runs in
two places. A trial that is lost learns it as the answer to its next report, and writes a
checkpoint; if the next report is far, it is ended after 5 s. The second thread sees to this, since
the first may be waiting for a database that does not answer. No thread runs in a sweep whose
process is stopped: its workers end by themselves shortly before the lease does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Protocol

from automl.errors import AutoMLError
from automl.record.lease import lease_seconds

SHIP_SECONDS = 0.2
LOOK_SECONDS = 1.0
RENEW_SECONDS = 10.0
GIVE_UP_SECONDS = 50.0
"""Trials are given up this long after the last renewal began, by this machine's clock."""
WORKER_SECONDS = 57.0
"""Workers end by themselves this long after the last renewal began; they check once a second."""
RENEW_AFTER_STOP_SECONDS = 5.0
"""A process that was stopped and runs again has this long to renew its leases before it gives its
trials up: perhaps no other sweep has taken them."""

logger = logging.getLogger(__name__)


class SharingDuties(Protocol):
    """What the threads call. Each method may raise StorageError."""

    def ship(self) -> None:
        """Send logged events to the database, and answer the requests of commands."""

    def look(self) -> None:
        """Read what other sweeps did."""

    def renew(self) -> None:
        """Renew the leases of all held trials."""

    def give_up(self) -> None:
        """Give up all held trials. Needs no database."""

    def end_lost(self) -> None:
        """End trials that still run though they were given up or taken over. Needs no database."""

    def set_worker_deadline(self, until_seconds: float) -> None:
        """Make workers end by themselves at this time (`lease_seconds()`). Needs no database."""

    def report_failure(self, error: BaseException) -> None:
        """Report a mistake of our own, after which the threads ask nothing more of the database."""


class SharingThreads:
    """The two threads; `start` may be called once, and `close` ends them."""

    def __init__(self, duties: SharingDuties, clock: Callable[[], float] = lease_seconds) -> None:
        self._duties, self._clock = duties, clock
        self._renewed = self._looked = self._watched = self._resumed = clock()
        self._ending = threading.Event()
        self.trouble: str | None = None
        """Why the database takes nothing now; None: it answers."""
        self._threads = [
            threading.Thread(target=self._repeat, args=(do,), name=name, daemon=True)
            for name, do in (("sharing", self.turn), ("leases", self.watch))
        ]

    @property
    def is_cut_off(self) -> bool:
        """Whether leases were not renewed for too long: a trial that begins now would be ended."""
        return self._clock() - self._renewed >= GIVE_UP_SECONDS

    def start(self) -> None:
        self._duties.set_worker_deadline(self._renewed + WORKER_SECONDS)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End both threads, and wait for them."""
        self._ending.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _repeat(self, do: Callable[[], None]) -> None:
        try:
            while not self._ending.wait(SHIP_SECONDS):
                do()
        except BaseException as error:  # noqa: BLE001 - else leases would end unnoticed
            self._duties.give_up()
            self._duties.report_failure(error)

    def watch(self) -> None:
        """Give up trials that could not be renewed, and end lost ones. Waits for no database."""
        now = self._clock()
        if now - self._watched >= RENEW_AFTER_STOP_SECONDS:
            self._resumed = now  # the process was stopped since the last call
        self._watched = now
        if self.is_cut_off and now - self._resumed >= RENEW_AFTER_STOP_SECONDS:
            self._duties.give_up()
        self._duties.end_lost()

    def turn(self) -> None:
        """Renew, send and look, each if it is due. Waits for the database."""
        try:
            self._renew_if_due()  # first, so that nothing else can delay it
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
        begin_seconds = self._clock()
        if begin_seconds - self._renewed >= RENEW_SECONDS:
            self._duties.renew()
            self._renewed = begin_seconds
            self._duties.set_worker_deadline(begin_seconds + WORKER_SECONDS)


STOP_SECONDS = 5.0
"""Lost trials have this long to stop by themselves."""


class LostTrials:
    """The lost trials that still run in this sweep, and since when. For one thread."""

    def __init__(self, clock: Callable[[], float] = lease_seconds) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def overdue(self, lost: Collection[int]) -> Collection[int]:
        """Return which of the trials that are lost now must be ended.

        A trial is returned again after another STOP_SECONDS, since one that was just about to
        begin could not be ended.
        """
        now = self._clock()
        self._since = {number: self._since.get(number, now) for number in lost}
        overdue = {n for n, since in self._since.items() if now - since >= STOP_SECONDS}
        self._since |= dict.fromkeys(overdue, now)
        return overdue
