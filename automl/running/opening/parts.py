"""Opens the parts of one sweep in the order in which they can refuse, and closes them in reverse.

When study and event log are open, each restores what the other has lost: the end of either can be
lost while the other is whole (a repaired file system, an old copy). MLflow is made from the log
alone. Outcomes that only the log has are told to the study when the sweep takes its trials over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from automl.admission.requests import RequestMaker
from automl.config import (
    CodeChange,
    Config,
    ExecutionKind,
    ObjectiveKind,
    StudyConfig,
    TrackingStore,
)
from automl.devices.device_reader import DeviceReader
from automl.devices.device_reading import NodesReader
from automl.devices.host import n_oom_kills
from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import Executor, InlineExecutor
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.record.disk import write_durably
from automl.record.event_log import EventLog
from automl.record.lease import this_holder
from automl.record.studies import SWEEP_COMMANDS, read_study
from automl.record.study_directory import (
    StudyDirectory,
    holding_for,
    open_joined_folder,
    settle_place,
)
from automl.record.study_files import EVENTS_FILE, JOURNAL
from automl.record.study_record import MIXED_CODE, StudyRecord, changed_code, code_change_text
from automl.record.study_requests import FolderRequestQueue, RequestQueue
from automl.record.texts import counted
from automl.running.loop.messages import PlannedTrial, WaitingTrial
from automl.running.opening.outside_trials import OutsideTrials
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.optuna_trials import BegunTrials
from automl.search.study import Study
from automl.tracking.deliver.delivery import DelivererProcess, DeliverySupervisor, NoDelivery
from automl.tracking.deliver.process import DELIVERY_NICENESS, NICENESS_BELOW_RAY
from automl.tracking.view.run_update import StudyRef
from automl.trial import (
    LOCAL_NODE,
    DeviceKind,
    FailedOutcome,
    MemoryPeakMeasured,
    StudyEdited,
    TooLargeOutcome,
    TrialOutcome,
    TrialStarted,
    TrialState,
)

if TYPE_CHECKING:
    from automl.execution.cluster.nodes import ClusterNodes
    from automl.running.opening.shared_sweep import PeerSweeps


class NoPeerSweeps:
    """Stands in for `PeerSweeps` if no other sweep works on the study, and does nothing."""

    may_run = False
    """Whether trials of other sweeps may run."""

    def is_lost(self, trial: int) -> bool:
        """Return False, since no other sweep takes trials."""
        return False

    def start(self, *callbacks: object) -> None:
        """Do nothing, since there are no sweeps to watch."""

    def greeting(self) -> Iterator[str]:
        """Yield nothing, since there is nothing to say."""
        yield from ()

    def settle(self, timeout_seconds: float) -> str | None:
        """Return None: all logged events are in the study's own directory."""
        return None

    def trouble(self) -> str | None:
        """Return None, since there is no database."""
        return None

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

    def add_news(self) -> None:
        """Do nothing, since nobody else does anything."""

    def hear(self) -> bool:
        """Return True: all that happens to the study is known."""
        return True


def begun_trials(log: EventLog) -> BegunTrials:
    """Return the params of the trials that the log has, by number.

    A study that has lost them would give their numbers to new trials, which would go on from their
    checkpoints with other params.
    """
    return {n: trial.params for n, trial in log.record.trials.items() if trial.n_starts}


def restore_lost_events(study: Study, log: EventLog) -> str:
    """Append missing starts and outcomes of trials to the log. Return a line about it, or nothing.

    Reports are not restored: MLflow may have them, and with other times they would be there twice.
    Raises StorageError.
    """
    trials = log.record.trials
    known = {number for number, trial in trials.items() if trial.state.is_final}
    lost = study.ended(excluded=known)
    for trial in lost:
        recorded = trials.get(trial.number)
        if recorded is None or not recorded.n_starts:
            log.append(TrialStarted(trial.number, trial.began, trial.params, device="unknown"))
        log.append(trial.outcome)
    if not lost:
        return ""
    n_lost = counted(len(lost), "trial")
    return f"{EVENTS_FILE} had lost how {n_lost} ended: put back from what Optuna keeps"


def learn_memory(record: StudyRecord, requests: RequestMaker) -> None:
    """Take the memory that earlier sweeps of the study measured."""
    for trial in record.trials.values():
        if isinstance(trial.outcome, FailedOutcome | TooLargeOutcome):
            continue  # the trial may have ended before it held all it wants
        kind = trial.kind or DeviceKind.GPU
        for n_lanes, peak_bytes in trial.peaks.items():
            peak = MemoryPeakMeasured(trial.number, trial.started, peak_bytes, n_lanes)
            requests.learn(trial.params, peak, kind)


def open_outside_trials(
    prepared: PreparedStudy, study: Study, log: EventLog, directory: Path
) -> OutsideTrials:
    """Return the trials of the study in `directory` that run outside of any sweep."""
    config, metrics = prepared.config, prepared.config.study.metrics
    needs_reports = metrics.are_several and not config.study.shared
    record = read_study(directory, keep_reports=True) if needs_reports else log.record
    only = config.objective.kind is ObjectiveKind.outside
    return OutsideTrials(study, log, record, metrics=metrics, only=only)


def take_over_trials(
    study: Study,
    record: StudyRecord,
    tell: Callable[[TrialOutcome], None],
    elsewhere: Container[int] = (),
) -> list[WaitingTrial]:
    """Return the trials that an earlier sweep left, without those that run `elsewhere`. Tell the
    study logged outcomes and pauses."""
    unfinished = []
    for asked in (asked for asked in study.interrupted() if asked.number not in elsewhere):
        trial = PlannedTrial(asked.number, asked.params)
        known = record.trials.get(asked.number)
        if known is None:
            unfinished.append(WaitingTrial(trial))
        elif known.outcome is not None and known.state.is_final:
            tell(known.outcome)
        else:
            if known.state is TrialState.PAUSED:
                study.pauses.pause(asked.number)
            oom, deaths = known.n_out_of_memory, known.n_deaths
            may_pack = oom == deaths == 0
            unfinished.append(
                WaitingTrial(trial, may_pack, n_ran_out=oom, deaths=deaths, kind=known.kind)
            )
    return unfinished


MAX_THREADS = 10_000
"""Largest number of threads for the nodes of a cluster. A thread starts when it is needed."""
MAX_WORKERS = 512
"""Largest number of workers on a node."""
READY_SECONDS = 60.0
"""How long MLflow may take to open its store."""


@dataclass
class SweepParts:
    """The open parts of one sweep. `open_sweep_parts` opens and closes them."""

    prepared: PreparedStudy
    """Made anew when the study is edited; the other parts stay."""
    directory: StudyDirectory
    reader: DeviceReader
    study: Study
    log: EventLog
    delivery: DeliverySupervisor | NoDelivery
    executor: Executor
    requests: RequestQueue
    """What commands ask this sweep for."""
    outside: OutsideTrials
    """The trials that run outside of any sweep."""
    others: NoPeerSweeps | PeerSweeps = field(default_factory=NoPeerSweeps)
    """The other sweeps that work on the study. By default there are none."""
    nodes: ClusterNodes | None = None
    """Nodes of a cluster. None if trials run on this machine."""

    @property
    def config(self) -> Config:
        return self.prepared.config

    def record_edit(self, prepared: PreparedStudy) -> bool:
        """Record the last edit of the study. False: other sweeps have edited it or asked for trials
        since it was composed, or its database is away. Raises StorageError."""
        if isinstance(self.others, NoPeerSweeps):
            return self.log.append(prepared.edits[-1])
        return self.others.record_edit(prepared)

    @property
    def n_interrupted(self) -> int:
        """Number of trials that have begun, while this sweep runs none of them."""
        counts, n_outside = self.study.counts(), len(self.outside.trials)
        if not isinstance(self.others, NoPeerSweeps):  # they may begin trials, too
            return counts[TrialState.RUNNING] - n_outside - self.others.n_running()
        n_known = sum(n for state, n in counts.items() if state is not TrialState.RUNNING)
        return self.log.n_started - n_known - n_outside

    @property
    def stored(self) -> CheckpointStore | None:
        """The store in which this machine keeps copies of checkpoints. None if there is none, or if
        the nodes keep them."""
        return (
            None if self.nodes is not None else checkpoint_store(self.config.study, self.study.uuid)
        )

    @property
    def machine(self) -> str:
        """Name of this machine in the devices of trials. If other sweeps may work on the study it
        is the host's name, by which the database tells them apart."""
        return this_holder().host if self.config.study.shared else LOCAL_NODE

    @property
    def n_places(self) -> int:
        """Largest number of trials, or packs, at once."""
        return n_places(self.prepared, self.reader)

    @property
    def n_threads(self) -> int:
        """Largest number of threads that may carry trials, nodes that may still come included."""
        return self.n_places if self.nodes is None else MAX_THREADS


def n_places(prepared: PreparedStudy, reader: DeviceReader) -> int:
    """Return the largest number of trials, or packs, at once, on silent devices included."""
    limits = prepared.limits
    if isinstance(reader, NodesReader):
        limits = limits.with_places_of(reader.take().devices)
    return limits.at_once(reader.addresses)


def make_executor(
    prepared: PreparedStudy,
    directory: StudyDirectory,
    max_workers: int,
    nodes: ClusterNodes | None = None,
    study_uuid: str = "",
) -> Executor:
    """Return the executor that the config names. Raises ConfigError."""
    if nodes is not None:
        from automl.execution.cluster.nodes_executor import NodesExecutor

        limits, shared = worker_limits(prepared, MAX_WORKERS), prepared.config.study.shared
        where, stored = directory.path, checkpoint_store(prepared.config.study, study_uuid)
        return NodesExecutor(
            nodes, prepared.entry, where, limits, stored=stored, stores_shared=shared
        )
    if prepared.config.execution.kind is ExecutionKind.inline:
        return InlineExecutor(prepared.entry, directory.files.logs)
    limits = worker_limits(prepared, max_workers)
    return WorkersExecutor(prepared.entry, directory.files.logs, limits)


def checkpoint_store(study: StudyConfig, study_uuid: str) -> CheckpointStore | None:
    """Return the store for copies of the study's checkpoints, or None if there is none."""
    return None if study.checkpoints is None else CheckpointStore(study.checkpoints, study_uuid)


def worker_limits(prepared: PreparedStudy, max_workers: int) -> WorkerLimits:
    """Return the limits of workers. They wait for a verdict at the study's own rungs."""
    execution = prepared.config.execution
    return WorkerLimits(
        max_workers=max_workers,
        trial_timeout_seconds=execution.trial_timeout_seconds,
        silence_timeout_seconds=execution.silence_timeout_seconds,
        recycle_after_trials=execution.recycle_after_trials,
        recycle_growth_bytes=execution.recycle_growth_bytes,
        n_oom_kills=n_oom_kills,
        judging=JudgedReports(prepared.config.study.leading_metric, prepared.rungs),
    )


def store_config(directory: StudyDirectory, stored_config: str) -> None:
    """Store the config, without which the study cannot be resumed. Raises StorageError."""
    path = directory.files.config
    try:
        write_durably(path, stored_config)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): make room or mend the disk, then give "
            "the same command again."
        ) from error


@holding_for(SWEEP_COMMANDS[0])  # the sweep of a refit or a release is one, too
def open_study_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
    """Return the study's directory for a sweep, or one beside it if another sweep works there on a
    study that may be shared. Raises the errors of `StudyDirectory.open`."""
    try:
        return StudyDirectory.open(study, must_exist=must_exist)
    except StudyInUseError:
        if not study.shared:
            raise
    return open_joined_folder(study)


def changed_code_note(prepared: PreparedStudy, record: StudyRecord) -> str:
    """Return a line about code that trials of the record had otherwise, or nothing. Raises
    ConfigError where the user wants no such trials in one study."""
    changed = changed_code(record.code, prepared.code) if record.n_begun else ()
    if not changed:
        return ""
    text, objective = code_change_text(changed, record.n_begun), prepared.config.objective
    if objective.if_changed is CodeChange.refuse and prepared.called is None:
        raise ConfigError(
            f"objective.if_changed=refuse: {text}. Take the change back, begin a new study.name, "
            "or go on all the same by objective.if_changed=warn."
        )
    return f"{text}: {MIXED_CODE}; objective.if_changed=refuse refuses that"


@contextmanager
def open_sweep_parts(
    prepared: PreparedStudy,
    directory: StudyDirectory,
    reader: DeviceReader,
    *,
    stored_config: str,
    deliverer: DelivererProcess | None,
    nodes: ClusterNodes | None = None,
) -> Iterator[SweepParts]:
    """Open study, event log, MLflow's delivery and executor. Close them in reverse order.

    The database of a shared study holds the unfinished trials, and its event log cannot lose what
    it has.
    """
    config = prepared.config
    study: Study
    others: PeerSweeps | None = None
    with ExitStack() as stack:
        if config.study.shared:
            from automl.running.opening.shared_sweep import join_shared_study

            study, others = join_shared_study(prepared, directory, stored_config)
            stack.callback(others.close)
            log = others.log
        else:
            log = EventLog.open(directory.files.events)
            stack.callback(log.close)
            study = Study.open(
                config.study, prepared.rules, directory.path, begun=begun_trials(log)
            )
            stack.callback(study.close)
            if study.n_restored:
                lost = counted(study.n_restored, "trial")
                prepared = prepared.noting(
                    f"{JOURNAL} had lost {lost}: put back from {EVENTS_FILE}"
                )
        place = settle_place(directory.path, config.study, study.uuid, study.stored_name)
        if others is None:
            study.keep_uuid(place.study_uuid)
        # Delivery starts once the study has agreed, since it creates a missing MLflow database.
        delivery: DeliverySupervisor | NoDelivery = NoDelivery()
        if config.tracking.store is TrackingStore.mlflow:
            delivery = DeliverySupervisor.start(
                directory.path,
                config.tracking,
                deliverer,
                study=StudyRef(place.study_uuid, place.name, place.former_names),
                n_known_trials=study.n_asked if others is None else 0,
                # The study of a refit has begun.
                before_trials=others is None and prepared.plan.refit is None,
                shared=None if others is None else others.deliveries(config.study),
                niceness=DELIVERY_NICENESS if nodes is None else NICENESS_BELOW_RAY,
            )
        stack.callback(delivery.stop)
        if log.record.edits != prepared.edits:
            raise StudyInUseError(
                f"study.name={config.study.name}: it was edited while this sweep loaded; give the "
                "command again."
            )
        prepared = prepared.noting(changed_code_note(prepared, log.record))
        delivery.wait_usable(READY_SECONDS)
        if others is None:
            prepared = prepared.noting(restore_lost_events(study, log))
        store_config(directory, stored_config)
        executor = make_executor(
            prepared, directory, n_places(prepared, reader), nodes, place.study_uuid
        )
        stack.callback(executor.close)
        yield SweepParts(
            *(prepared, directory, reader, study, log, delivery, executor),
            FolderRequestQueue(directory.path, directory.locked_time)
            if others is None
            else others.requests,
            open_outside_trials(prepared, study, log, directory.path),
            others=NoPeerSweeps() if others is None else others,
            nodes=nodes,
        )
