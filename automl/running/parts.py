"""The open parts of one sweep: opened in the order in which they can refuse, closed in reverse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from automl.config import Config, ExecutionKind, StudyConfig, TrackingStore
from automl.devices.cgroup import n_oom_kills
from automl.devices.nodes import NodesReader
from automl.devices.reader import DeviceReader
from automl.errors import StorageError, StudyInUseError
from automl.execution.executor import Executor
from automl.execution.inline import InlineExecutor
from automl.execution.process import WorkerLimits
from automl.execution.protocol import Judging
from automl.execution.stored import Stored
from automl.execution.workers import WorkersExecutor
from automl.record.directory import StudyDirectory
from automl.record.disk import write_durably
from automl.record.events import EventLog
from automl.record.files import EVENTS
from automl.record.place import settle
from automl.record.sharing.holder import this_holder
from automl.running.alone import Alone
from automl.running.lost_events import put_back
from automl.running.prepared import Prepared
from automl.search.study import Study
from automl.tracking.deliver import BELOW_RAY, NICENESS
from automl.tracking.delivery import DelivererProcess, Delivery
from automl.tracking.nowhere import NoDelivery
from automl.tracking.run_update import StudyRef
from automl.trial import LOCAL_NODE

if TYPE_CHECKING:
    from automl.execution.cluster.nodes import Nodes
    from automl.running.shared import Together

MAX_THREADS = 10_000
"""That carry trials on the nodes of a cluster; a thread is begun when it is needed."""
MAX_WORKERS = 512
"""Of a node."""
READY_SECONDS = 60.0
"""How long MLflow may take to open its store."""


@dataclass(frozen=True)
class Parts:
    """The open parts of one sweep."""

    prepared: Prepared
    directory: StudyDirectory
    reader: DeviceReader
    study: Study
    log: EventLog
    delivery: Delivery | NoDelivery
    executor: Executor
    others: Alone | Together = field(default_factory=Alone)
    """Who else works on the study."""
    nodes: Nodes | None = None
    """Of a cluster; None: trials run on this machine."""

    @property
    def config(self) -> Config:
        return self.prepared.config

    @property
    def stored(self) -> Stored | None:
        """Where this machine keeps checkpoints besides; None: nowhere, or its nodes do."""
        return None if self.nodes is not None else stored_of(self.config.study, self.study.uuid)

    @property
    def machine(self) -> str:
        """What this machine is called where a trial's device is told: by its name where sweeps of
        others may work on the study, too, which the database knows by theirs."""
        return this_holder().host if self.config.study.shared else LOCAL_NODE

    @property
    def n_places(self) -> int:
        """The most trials, or packs, at once."""
        return n_places(self.prepared, self.reader)

    @property
    def n_threads(self) -> int:
        """The most that may be needed to carry them: nodes may come."""
        return self.n_places if self.nodes is None else MAX_THREADS


def n_places(prepared: Prepared, reader: DeviceReader) -> int:
    """The most trials, or packs, at once over all devices, those included that do not answer."""
    limits = prepared.limits
    if isinstance(reader, NodesReader):
        limits = limits.by(reader.take().devices)
    return limits.at_once(reader.addresses)


def make_executor(
    prepared: Prepared,
    directory: StudyDirectory,
    max_workers: int,
    nodes: Nodes | None = None,
    study_uuid: str = "",
) -> Executor:
    """The executor that the config names. Raises ConfigError."""
    if nodes is not None:
        from automl.execution.cluster.executor import NodesExecutor

        limits, shared = worker_limits(prepared, MAX_WORKERS), prepared.config.study.shared
        where, stored = directory.path, stored_of(prepared.config.study, study_uuid)
        return NodesExecutor(
            nodes, prepared.entry, where, limits, stored=stored, stores_shared=shared
        )
    if prepared.config.execution.kind is ExecutionKind.inline:
        return InlineExecutor(prepared.entry, directory.files.logs)
    limits = worker_limits(prepared, max_workers)
    return WorkersExecutor(prepared.entry, directory.files.logs, limits)


def stored_of(study: StudyConfig, study_uuid: str) -> Stored | None:
    """Where checkpoints of the study are kept besides; None: nowhere."""
    return None if study.checkpoints is None else Stored(study.checkpoints, study_uuid)


def _niceness(nodes: Nodes | None) -> int:
    """Of delivering to MLflow, below what trains."""
    return NICENESS if nodes is None else BELOW_RAY


def worker_limits(prepared: Prepared, max_workers: int) -> WorkerLimits:
    """What worker processes are held to; they wait for a verdict at the study's own rungs."""
    execution = prepared.config.execution
    return WorkerLimits(
        max_workers=max_workers,
        trial_timeout_seconds=execution.trial_timeout_seconds,
        silence_timeout_seconds=execution.silence_timeout_seconds,
        recycle_after_trials=execution.recycle_after_trials,
        recycle_growth_bytes=execution.recycle_growth_bytes,
        n_oom_kills=n_oom_kills,
        max_devices=prepared.config.admission.devices_per_trial,
        judging=Judging(prepared.config.study.metric, prepared.rungs),
    )


def _store_config(directory: StudyDirectory, stored_config: str) -> None:
    """No picture: without it the study cannot be resumed. Raises StorageError."""
    path = directory.files.config
    try:
        write_durably(path, stored_config)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): make room or mend the disk, then give "
            "the same command again."
        ) from error


def open_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
    """The study's directory, for a sweep; where another is at work there on a study that may be
    shared, one beside. Raises as `StudyDirectory.open`."""
    try:
        return StudyDirectory.open(study, must_exist=must_exist)
    except StudyInUseError:
        if not study.shared:
            raise
    from automl.record.sharing.folder import open_joined

    return open_joined(study)


@contextmanager
def open_parts(
    prepared: Prepared,
    directory: StudyDirectory,
    reader: DeviceReader,
    *,
    stored_config: str,
    deliverer: DelivererProcess | None,
    nodes: Nodes | None = None,
) -> Iterator[Parts]:
    """Open study, event log, MLflow's delivery and executor; close them in the other order."""
    config = prepared.config
    if config.study.shared:
        opened = _open_shared(prepared, directory, reader, stored_config, deliverer, nodes)
        with opened as parts:
            yield parts
        return
    with ExitStack() as stack:
        study = Study.open(config.study, prepared.rules, directory.path)
        stack.callback(study.close)
        place = settle(directory.path, config.study, study.uuid, study.stored_name)
        study.keep_uuid(place.study_uuid)
        ref = StudyRef(place.study_uuid, place.name, place.former_names)
        # Not before the study has agreed: the process makes MLflow's database where there is none.
        delivery: Delivery | NoDelivery = NoDelivery()
        if config.tracking.store is TrackingStore.mlflow:
            delivery = Delivery.start(
                directory.path,
                config.tracking,
                deliverer,
                study=ref,
                n_known_trials=study.n_asked,
                before_trials=prepared.plan.refit is None,  # whose study has begun
                niceness=_niceness(nodes),
            )
        stack.callback(delivery.stop)
        log = EventLog.open(directory.files.events)  # while MLflow is being loaded
        stack.callback(log.close)
        delivery.wait_usable(READY_SECONDS)
        if n_lost := put_back(study, log):
            note = f"{EVENTS} had lost how {n_lost} trials ended: put back from what Optuna keeps"
            prepared = replace(prepared, notes=(*prepared.notes, note))
        _store_config(directory, stored_config)
        executor = make_executor(
            prepared, directory, n_places(prepared, reader), nodes, place.study_uuid
        )
        stack.callback(executor.close)
        yield Parts(prepared, directory, reader, study, log, delivery, executor, nodes=nodes)


@contextmanager
def _open_shared(
    prepared: Prepared,
    directory: StudyDirectory,
    reader: DeviceReader,
    stored_config: str,
    deliverer: DelivererProcess | None,
    nodes: Nodes | None,
) -> Iterator[Parts]:
    """As `open_parts`, of a study that other sweeps work on, too: the database has what is left of
    trials, and the event log cannot have lost what it has."""
    from automl.running.shared import Together, join

    config = prepared.config
    with ExitStack() as stack:
        shared, study = join(prepared, directory, stored_config)
        together = Together(shared, study, directory, config.study.checkpoints)
        stack.callback(together.close)
        place = settle(directory.path, config.study, study.uuid, study.stored_name)
        ref = StudyRef(place.study_uuid, place.name, place.former_names)

        delivery: Delivery | NoDelivery = NoDelivery()
        if config.tracking.store is TrackingStore.mlflow:
            shares = together.deliveries(config.study, config.tracking)
            delivery = Delivery.start(
                directory.path,
                config.tracking,
                deliverer,
                study=ref,
                shared=shares,
                niceness=_niceness(nodes),
            )
        stack.callback(delivery.stop)
        delivery.wait_usable(READY_SECONDS)
        _store_config(directory, stored_config)
        executor = make_executor(
            prepared, directory, n_places(prepared, reader), nodes, place.study_uuid
        )
        stack.callback(executor.close)
        yield Parts(
            *(prepared, directory, reader, study, shared.log, delivery, executor),
            others=together,
            nodes=nodes,
        )
