"""Keeps the study of one sweep: in its folder alone, or in a database that several sweeps share.

`parts.py` opens the store that the config names, and a sweep asks the store for all that depends on
where its study is kept. `FolderStore` and `NoPeerSweeps` serve a study that one sweep has to
itself. The other store is in `database_store.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from automl.config import StudyConfig
from automl.record.event_log import EventLog, read_edits
from automl.record.studies import study_path
from automl.record.study_directory import StudyDirectory, StudyPlace
from automl.record.study_files import EVENTS_FILE, JOURNAL, StudyFiles
from automl.record.study_requests import FolderRequestQueue, RequestQueue
from automl.record.texts import counted
from automl.running.loop.messages import LoopMessage, NoPeers, PeerQuestions
from automl.running.opening.recovery import begun_trials, restore_lost_events
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.study import Study
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.trial import LOCAL_NODE, StudyEdited, TrialState

ListBusyTrials = Callable[[], Collection[int]]
PostMessage = Callable[[LoopMessage], None]
EndLostTrials = Callable[[Collection[int]], None]
ExtendLease = Callable[[float], None]


class PeerSweeps(PeerQuestions, Protocol):
    """The other sweeps that work on the study. For the main thread, unless it says otherwise."""

    @property
    def are_expected(self) -> bool:
        """Whether there may be other sweeps."""

    def start(
        self, busy: ListBusyTrials, post: PostMessage, end: EndLostTrials, lend: ExtendLease
    ) -> None:
        """Watch the other sweeps from now on.

        Once a second, `post` gets the state of the study, `end` the trials that other sweeps have
        taken and that did not stop by themselves, and `lend` the time until which workers may run
        unwatched. `busy` returns the trials that run or wait here.
        """

    def greeting(self) -> Iterator[str]:
        """Yield lines about the other sweeps for the begin of this one."""

    def has_trial(self, trial: int) -> bool:
        """Return whether the trial has not ended and another sweep has it, or will take it over."""

    def is_left(self, trial: int) -> bool:
        """Return whether no sweep has the trial, which has not ended."""

    def n_running(self, own: Collection[int] = ()) -> int:
        """Return the number of trials that other sweeps have, as far as is known. `own` are trials
        that run or wait here, though they may be lost or have just ended."""

    def follow_edits(self, follow: Callable[[StudyEdited], None]) -> None:
        """Have `follow` called in the main thread with each edit that is recorded from now on."""

    def hear(self) -> bool:
        """Read at once what other sweeps did, and return whether they can be heard of."""

    def settle(self, timeout_seconds: float) -> str | None:
        """Wait until the other sweeps can see all logged events, and this sweep all of theirs.
        Return why that cannot be now, or None."""

    def trouble(self) -> str | None:
        """Return why nothing can be heard of other sweeps now, or None."""


class NoPeerSweeps(NoPeers):
    """Stands in for `PeerSweeps` if no other sweep works on the study, and does nothing."""

    are_expected = False

    def start(self, *callbacks: object) -> None:
        """Do nothing, since there are no sweeps to watch."""

    def greeting(self) -> Iterator[str]:
        """Yield nothing, since there is nothing to say."""
        yield from ()

    def has_trial(self, trial: int) -> bool:
        """Return False, since no other sweep has trials."""
        return False

    def is_left(self, trial: int) -> bool:
        """Return False, since every trial is this sweep's."""
        return False

    def n_running(self, own: Collection[int] = ()) -> int:
        """Return 0, since every trial is this sweep's."""
        return 0

    def follow_edits(self, follow: Callable[[StudyEdited], None]) -> None:
        """Do nothing, since nobody else records edits."""

    def hear(self) -> bool:
        """Return True: all that happens to the study is known."""
        return True

    def settle(self, timeout_seconds: float) -> str | None:
        """Return None: all logged events are in the study's own directory."""
        return None

    def trouble(self) -> str | None:
        """Return None, since there is no database."""
        return None


@dataclass(frozen=True)
class DeliveryScope:
    """Says what this sweep delivers of its study to MLflow."""

    n_known_trials: int = 0
    """Number of trials that the study had before; the log may not show that they have a run."""
    before_trials: bool = False
    """Whether faults that would hit each trial are looked for before the first one."""
    shared: SharedDeliveryJob | None = None
    """The part of a study that several sweeps share; None if this sweep delivers all of it."""


class StudyStore(Protocol):
    """Keeps a study while one sweep works on it. `open` makes it, `close` ends it."""

    @property
    def study(self) -> Study: ...

    @property
    def log(self) -> EventLog: ...

    @property
    def requests(self) -> RequestQueue:
        """What commands ask this sweep for."""

    @property
    def peers(self) -> PeerSweeps:
        """The other sweeps that work on the study."""

    @property
    def machine(self) -> str:
        """Name of this machine in the devices of trials."""

    @property
    def note(self) -> str:
        """Line about what was put back when the study was opened, or nothing."""

    @staticmethod
    def edits(study: StudyConfig) -> Sequence[StudyEdited]:
        """Return the edits of a study that is not open yet. Raises AutoMLError."""

    @staticmethod
    def open_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
        """Return the directory of a sweep of the study. Raises the errors of
        `StudyDirectory.open`."""

    @classmethod
    def open(
        cls, prepared: PreparedStudy, directory: StudyDirectory, stored_config: str
    ) -> StudyStore:
        """Open or begin the study. Raises AutoMLError."""

    def settle_uuid(self, place: StudyPlace) -> None:
        """Have the study keep the uuid by which its place knows it."""

    def delivery_scope(self) -> DeliveryScope:
        """Return what this sweep delivers of the study."""

    def restore(self) -> str:
        """Put back into the event log what the study still knows. Return a line about it, or
        nothing. Raises StorageError."""

    def record_edit(self, prepared: PreparedStudy) -> bool:
        """Record the last edit of the study. False: other sweeps have edited it or asked for trials
        since it was composed, or its database is away. Raises StorageError."""

    @property
    def n_open(self) -> int:
        """Number of trials that have begun and not ended, while this sweep runs none of them.
        Those of other sweeps do not count."""

    def close(self) -> None: ...


class FolderStore:
    """Keeps a study that one sweep has to itself in the study's folder.

    The event log and the study each restore what the other has lost.
    """

    machine = LOCAL_NODE

    def __init__(self, study: Study, log: EventLog, directory: StudyDirectory) -> None:
        self.study, self.log, self._directory = study, log, directory
        self.peers = NoPeerSweeps()

    @staticmethod
    def edits(study: StudyConfig) -> Sequence[StudyEdited]:
        return read_edits(StudyFiles(study_path(study)).events)

    @staticmethod
    def open_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
        return StudyDirectory.open(study, must_exist=must_exist)

    @classmethod
    def open(
        cls, prepared: PreparedStudy, directory: StudyDirectory, stored_config: str
    ) -> FolderStore:
        log = EventLog.open(directory.files.events)
        try:
            begun = begun_trials(log)
            study = Study.open(prepared.config.study, prepared.rules, directory.path, begun=begun)
        except BaseException:
            log.close()
            raise
        return cls(study, log, directory)

    @cached_property
    def requests(self) -> FolderRequestQueue:
        return FolderRequestQueue(self._directory.path, self._directory.locked_time)

    @property
    def note(self) -> str:
        n_lost = self.study.n_restored
        lost = counted(n_lost, "trial")
        restored = f"{JOURNAL} had lost {lost}: put back from {EVENTS_FILE}" if n_lost else ""
        return self.study.import_note or restored

    def settle_uuid(self, place: StudyPlace) -> None:
        self.study.keep_uuid(place.study_uuid)

    def delivery_scope(self) -> DeliveryScope:
        return DeliveryScope(n_known_trials=self.study.n_asked, before_trials=True)

    def restore(self) -> str:
        return restore_lost_events(self.study, self.log)

    def record_edit(self, prepared: PreparedStudy) -> bool:
        return self.log.append(prepared.edits[-1])

    @property
    def n_open(self) -> int:
        counts = self.study.counts()
        n_known = sum(n for state, n in counts.items() if state is not TrialState.RUNNING)
        return self.log.n_started - n_known

    def close(self) -> None:
        try:
            self.study.close()
        finally:
            self.log.close()
