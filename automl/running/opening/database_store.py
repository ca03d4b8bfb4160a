"""Keeps the study of a sweep in a database, in which several sweeps share it. Other sweeps do not
load this module.

What other sweeps do comes as messages (`PeerSweepsObserved`) from the thread that watches the
database. One sweep delivers all trials to MLflow (`tracking/deliver/shared_delivery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from automl.config import StudyConfig
from automl.errors import StudyInUseError
from automl.record.lease import this_holder
from automl.record.sharing.shared_log import SharedEventLog
from automl.record.sharing.shared_record import SharedRecord, SharedStudyStanding
from automl.record.sharing.shared_requests import SweepRequestQueue
from automl.record.sharing.study_fetch import fetch_edits
from automl.record.study_directory import (
    JOINED_FOLDER,
    StudyDirectory,
    StudyPlace,
    has_others_checkpoints,
    open_joined_folder,
)
from automl.running.loop.messages import PeerSweepsObserved, SweepFailed
from automl.running.opening.study_store import (
    DeliveryScope,
    EndLostTrials,
    ExtendLease,
    ListBusyTrials,
    PostMessage,
)
from automl.running.prepare.edited_study import refuse_unshareable_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.trial import StudyEdited, TrialState


class DatabaseStore:
    """Keeps a shared study in its database, which holds the unfinished trials, too.

    Its event log cannot lose what it has.
    """

    note = ""

    def __init__(
        self,
        config: StudyConfig,
        shared: SharedRecord,
        study: SharedStudy,
        directory: StudyDirectory,
    ) -> None:
        self._config, self._shared, self.study = config, shared, study
        self.peers = SharingSweeps(shared, study, directory, config.checkpoint_copies)
        self.machine = this_holder().host
        """The host's name, by which the database tells the machines of sweeps apart."""

    @staticmethod
    def edits(study: StudyConfig) -> Sequence[StudyEdited]:
        return fetch_edits(study)

    @staticmethod
    def open_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
        """Return the study's directory, or one beside it if another sweep works there."""
        try:
            return StudyDirectory.open(study, must_exist=must_exist)
        except StudyInUseError:
            return open_joined_folder(study)

    @classmethod
    def open(
        cls, prepared: PreparedStudy, directory: StudyDirectory, stored_config: str
    ) -> DatabaseStore:
        refuse_unshareable_study(prepared)
        config = prepared.config.study
        shared = SharedRecord.open(config, directory.path)
        try:
            opened = open_shared_storage(shared, stored_config)
            study = SharedStudy.open(config, prepared.rules, directory.path, opened)
        except BaseException:
            shared.close()
            raise
        return cls(config, shared, study, directory)

    @property
    def log(self) -> SharedEventLog:
        """The event log of this sweep, which goes to the database, too."""
        return self._shared.log

    @property
    def requests(self) -> SweepRequestQueue:
        return self._shared.requests

    def settle_uuid(self, place: StudyPlace) -> None:
        """Do nothing, since the uuid is the database's."""

    def delivery_scope(self) -> DeliveryScope:
        return DeliveryScope(shared=SharedDeliveryJob.of(self._config, self._shared.sweep))

    def restore(self) -> str:
        """Return an empty text, since the database has lost nothing."""
        return ""

    def record_edit(self, prepared: PreparedStudy) -> bool:
        n_edits, n_trials = len(prepared.edits) - 1, prepared.edited_total
        return self._shared.record_edit(prepared.edits[-1], n_edits=n_edits, n_trials=n_trials)

    @property
    def n_open(self) -> int:
        return self.study.counts()[TrialState.RUNNING] - self.peers.n_running()

    def close(self) -> None:
        """Give back the trials that have not ended."""
        self._shared.close()


class SharingSweeps:
    """The other sweeps of a shared study, as one sweep sees them."""

    are_expected = True

    def __init__(
        self,
        shared: SharedRecord,
        study: SharedStudy,
        directory: StudyDirectory,
        checkpoints: str | None = None,
    ) -> None:
        """Connect to the others. `checkpoints` is where all keep their checkpoints, or None."""
        self._shared, self._study, self._directory = shared, study, directory
        self._checkpoints = checkpoints

    @property
    def n_edits(self) -> int:
        return self._study.n_edits

    def is_lost(self, trial: int) -> bool:
        return not self._shared.log.holds(trial)

    def has_trial(self, trial: int) -> bool:
        if trial >= self._study.n_asked:
            return trial < self._shared.standing.n_asked
        return self._study.is_running(trial) and not self._shared.log.holds(trial)

    def is_left(self, trial: int) -> bool:
        return self._shared.is_left(trial)

    def n_running(self, own: Collection[int] = ()) -> int:
        return sum(not self.is_left(n) for n in self._study.of_others() if n not in own)

    def follow_edits(self, follow: Callable[[StudyEdited], None]) -> None:
        self._study.follow_edit = follow

    def add_news(self) -> int:
        self._study.add_news()
        return self._study.n_asked

    def hear(self) -> bool:
        return self._study.hear()

    def start(
        self, busy: ListBusyTrials, post: PostMessage, end: EndLostTrials, lend: ExtendLease
    ) -> None:
        def tell(standing: SharedStudyStanding) -> None:
            post(
                PeerSweepsObserved(
                    n_trials=standing.n_trials,
                    n_left=standing.n_left,
                    run=standing.others_run,
                    n_edits=standing.n_edits,
                )
            )

        self._shared.start(busy, tell, lambda error: post(SweepFailed(error)), end, lend)

    def greeting(self) -> Iterator[str]:
        """Yield lines that say what is kept of a trial that is taken over."""
        path, checkpoints = self._directory.path, self._checkpoints
        if path.parent.parent.name == JOINED_FOLDER:
            yield f"another sweep is at work in this folder: this one joins it, in {path}"
        elif checkpoints is None and not has_others_checkpoints(path):
            yield (
                "trials that are taken over from a machine with another study.dir begin again: "
                "their checkpoints are there; what they reported is not told twice "
                "(study.checkpoint_copies=s3://BUCKET/PATH keeps them where all machines see them)"
            )

    def settle(self, timeout_seconds: float) -> str | None:
        """Wait until the database has all logged events and the study's copy is whole. Return why
        that cannot be now, or None."""
        if self._shared.drain(timeout_seconds):
            self._study.add_news()
            return None
        return self._shared.trouble or "it takes too long"

    def trouble(self) -> str | None:
        """Return why the database does not answer now, or None."""
        return self._shared.trouble

    def may_run(self) -> bool:
        """Return whether another sweep may still be running a trial that this sweep has not seen.

        The answer counts trials that others began since the last look at the database. For earlier
        trials the database's own standing is the better source.
        """
        return self._shared.is_away or self._study.others_run(self._shared.standing.n_asked)
