"""Wires a study that several sweeps work on into one of them. Unshared sweeps do not load this
module.

The other sweeps' doings come as messages (`PeerSweepsObserved`) from the thread that watches the
database. One sweep delivers all trials to MLflow (`tracking/deliver/shared_delivery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import EventLog
from automl.record.sharing.shared_record import SharedRecord, SharedStudyStanding
from automl.record.study_directory import JOINED_FOLDER, StudyDirectory, has_others_checkpoints
from automl.record.study_requests import RequestQueue
from automl.running.loop.messages import LoopMessage, PeerSweepsObserved, SweepFailed
from automl.running.prepare.identity_settings import option_name
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.trial import StudyEdited

ListBusyTrials = Callable[[], Collection[int]]
PostMessage = Callable[[LoopMessage], None]
EndLostTrials = Callable[[Collection[int]], None]
ExtendLease = Callable[[float], None]


def refuse_unshareable_study(prepared: PreparedStudy) -> None:
    """Raise ConfigError for features that only a single sweep supports."""
    if prepared.asks_for_params:
        raise ConfigError(
            "objective=optuna: params that an objective asks for while it runs are not shared "
            "between sweeps. Write them as the space (space.NAME=…), or leave study.storage out; "
            "postgresql+psycopg2://… keeps the study in Optuna's own tables, for one sweep."
        )
    if prepared.config.tracking.keep_best is not None:
        raise ConfigError(
            f"tracking.keep_best={prepared.config.tracking.keep_best}: sweeps of a shared study "
            "have their files on several machines, and none removes those of others: leave it out."
        )
    if prepared.pruner.pauses:
        raise ConfigError(
            f"pruner={option_name(prepared.pruner)}: sweeps of a shared study do not promote the "
            "trials that others have paused. Take pruner=halving, or leave study.storage out."
        )
    if prepared.called is not None and prepared.called.changed:
        raise ConfigError(
            "changed=True: a function that goes on as it is now would be another on each machine "
            "of a shared study. Begin a new study.name with it."
        )


def join_shared_study(
    prepared: PreparedStudy, directory: StudyDirectory, stored_config: str
) -> tuple[SharedStudy, PeerSweeps]:
    """Join or create the shared study. Return it and its other sweeps. Raises AutoMLError."""
    refuse_unshareable_study(prepared)
    config = prepared.config
    shared = SharedRecord.open(config.study, directory.path)
    try:
        opened = open_shared_storage(shared, stored_config)
        study = SharedStudy.open(config.study, prepared.rules, directory.path, opened)
    except BaseException:
        shared.close()
        raise
    return study, PeerSweeps(shared, study, directory, config.study.checkpoints)


class PeerSweeps:
    """Connects one sweep to the other sweeps of a shared study."""

    may_run = True
    """Whether trials of other sweeps may run."""

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
    def log(self) -> EventLog:
        """The event log of this sweep, which goes to the database, too."""
        return self._shared.log

    def is_lost(self, trial: int) -> bool:
        """Return whether another sweep has taken a trial of this sweep. For any thread."""
        return not self._shared.log.holds(trial)

    @property
    def requests(self) -> RequestQueue:
        """What commands ask this sweep for."""
        return self._shared.requests

    def has_trial(self, trial: int) -> bool:
        """Return whether the trial has not ended and another sweep has it, or will take it over."""
        if trial >= self._study.n_asked:
            return trial < self._shared.standing.n_asked
        return self._study.is_running(trial) and not self._shared.log.holds(trial)

    def is_left(self, trial: int) -> bool:
        """Return whether no sweep has the trial, which has not ended."""
        return self._shared.is_left(trial)

    def n_running(self, own: Collection[int] = ()) -> int:
        """Return the number of trials that other sweeps have, as far as is known. `own` are trials
        that run or wait here, though they may be lost or have just ended."""
        return sum(not self.is_left(n) for n in self._study.of_others() if n not in own)

    def follow_edits(self, follow: Callable[[StudyEdited], None]) -> None:
        """Have `follow` called in the main thread with each edit that is recorded from now on."""
        self._study.follow_edit = follow

    def record_edit(self, prepared: PreparedStudy) -> bool:
        """Record the last edit of the study, as `SweepParts.record_edit` says."""
        n_edits, n_trials = len(prepared.edits) - 1, prepared.edited_total
        return self._shared.record_edit(prepared.edits[-1], n_edits=n_edits, n_trials=n_trials)

    def add_news(self) -> None:
        """Take in what was read of other sweeps, an edit included."""
        self._study.add_news()

    def hear(self) -> bool:
        """Read at once what other sweeps did, and return whether the database answers."""
        return self._study.hear()

    def deliveries(self, study: StudyConfig) -> SharedDeliveryJob | None:
        """Return what this sweep delivers to MLflow from now on."""
        return SharedDeliveryJob.of(study, self._shared.sweep)

    def start(
        self, busy: ListBusyTrials, post: PostMessage, end: EndLostTrials, lend: ExtendLease
    ) -> None:
        """Watch the other sweeps from now on.

        Once a second, `post` gets the state of the study, `end` the trials that other sweeps have
        taken and that did not stop by themselves, and `lend` the time until which workers may run
        unwatched.
        """

        def tell(standing: SharedStudyStanding) -> None:
            held = self._shared.log.holds
            left, run = standing.n_left, standing.others_run
            seen = PeerSweepsObserved(
                *(standing.n_trials, left, run, held, self._may_run, self._hear),
                is_current=lambda: standing.n_edits == self._study.n_edits,
            )
            post(seen)

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
                "(study.checkpoints=s3://BUCKET/PATH keeps them where all machines see them)"
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

    def close(self) -> None:
        """Give back the trials that have not ended."""
        self._shared.close()

    def _may_run(self) -> bool:
        """Return whether another sweep may still be running a trial that this sweep has not seen.

        The answer counts trials that others began since the last look at the database. For earlier
        trials the database's own standing is the better source.
        """
        return self._shared.is_away or self._study.others_run(self._shared.standing.n_asked)

    def _hear(self) -> int:
        self._study.add_news()
        return self._study.n_asked
