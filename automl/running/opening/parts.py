"""Opens the parts of one sweep in the order in which they can refuse, and closes them in reverse.

Where the study is kept (`store_kind`) and where trials run (`open_sweep_machines`) is chosen here,
and nowhere else. What an earlier sweep has left is put right by `recovery.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from automl.config import (
    CodeChange,
    Config,
    ExecutionKind,
    ObjectiveKind,
    StudyConfig,
)
from automl.devices.device_reader import DeviceReader, open_device_reader
from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import Executor
from automl.record.disk import write_durably
from automl.record.event_log import EventLog
from automl.record.studies import SWEEP_COMMANDS, read_study
from automl.record.study_directory import StudyDirectory, holding_for, settle_place
from automl.record.study_record import MIXED_CODE, StudyRecord, changed_code, code_change_text
from automl.running.opening.machines import SweepMachines, ThisMachine
from automl.running.opening.outside_trials import OutsideTrials
from automl.running.opening.study_store import FolderStore, StudyStore
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.study import Study
from automl.tracking.deliver.delivery import DelivererProcess, DeliverySupervisor, NoDelivery
from automl.tracking.view.run_update import StudyRef
from automl.trial import StudyEdited


def open_outside_trials(
    prepared: PreparedStudy, study: Study, log: EventLog, directory: Path
) -> OutsideTrials:
    """Return the trials of the study in `directory` that run outside of any sweep."""
    config, metrics = prepared.config, prepared.config.study.metrics
    needs_reports = metrics.are_several and not config.study.shared
    record = read_study(directory, keep_reports=True) if needs_reports else log.record
    only = config.objective.kind is ObjectiveKind.outside
    return OutsideTrials(study, log, record, metrics=metrics, only=only)


READY_SECONDS = 60.0
"""How long MLflow may take to open its store."""


@dataclass
class SweepParts:
    """The open parts of one sweep. `open_sweep_parts` opens and closes them."""

    prepared: PreparedStudy
    """Made anew when the study is edited; the other parts stay."""
    directory: StudyDirectory
    machines: SweepMachines
    store: StudyStore
    delivery: DeliverySupervisor | NoDelivery
    executor: Executor
    outside: OutsideTrials
    """The trials that run outside of any sweep."""

    @property
    def config(self) -> Config:
        return self.prepared.config

    @property
    def study(self) -> Study:
        return self.store.study

    @property
    def log(self) -> EventLog:
        return self.store.log

    @property
    def n_interrupted(self) -> int:
        """Number of trials that have begun, while this sweep runs none of them."""
        return self.store.n_open - len(self.outside.trials)

    @property
    def reader(self) -> DeviceReader:
        return self.machines.reader

    @property
    def stored(self) -> CheckpointStore | None:
        """The store in which this machine keeps copies of checkpoints. None if there is none, or if
        the nodes keep them."""
        return self.machines.checkpoint_store(self.config.study, self.study.uuid)

    @property
    def states_are_here(self) -> bool:
        """Whether what trials keep of their states lies in the study's folder, and nowhere else."""
        return self.machines.checkpoints_are_here and self.stored is None

    @property
    def n_places(self) -> int:
        """Largest number of trials, or packs, at once."""
        return self.machines.n_places(self.prepared)

    @property
    def n_threads(self) -> int:
        """Largest number of threads that may carry trials, nodes that may still come included."""
        return self.machines.n_threads(self.prepared)


@contextmanager
def open_sweep_machines(prepared: PreparedStudy) -> Iterator[SweepMachines]:
    """Open the machines. Raises ConfigError if none can be used, AutoMLError if none answers."""
    with closing(_open_machines(prepared)) as machines:
        yield machines


def _open_machines(prepared: PreparedStudy) -> SweepMachines:
    if prepared.config.execution.kind is ExecutionKind.ray:
        from automl.running.opening.cluster_machines import Cluster  # loads the modules of clusters

        return Cluster.open(prepared)
    beside = prepared.uses_cpu_beside_gpus
    return ThisMachine(open_device_reader(prepared.devices, beside_gpus=beside))


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


def store_kind(study: StudyConfig) -> type[StudyStore]:
    """Return the class of the store that the config names. Raises ConfigError if its library is
    missing."""
    if not study.shared:
        return FolderStore
    from automl.running.opening.database_store import DatabaseStore  # loads psycopg

    return DatabaseStore


def edits_so_far(study: StudyConfig) -> Sequence[StudyEdited]:
    """Return the edits of the study, from its folder or its database. Raises AutoMLError."""
    return () if study.name is None else store_kind(study).edits(study)


@holding_for(SWEEP_COMMANDS[0])  # the sweep of a refit or a release is one, too
def open_study_directory(study: StudyConfig, *, must_exist: bool) -> StudyDirectory:
    """Return the directory of a sweep of the study. Raises the errors of `StudyDirectory.open`."""
    return store_kind(study).open_directory(study, must_exist=must_exist)


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
    machines: SweepMachines,
    *,
    stored_config: str,
    deliverer: DelivererProcess | None,
) -> Iterator[SweepParts]:
    """Open study, event log, MLflow's delivery and executor. Close them in reverse order."""
    config = prepared.config
    with ExitStack() as stack:
        store = store_kind(config.study).open(prepared, directory, stored_config)
        stack.callback(store.close)
        study, log = store.study, store.log
        prepared = prepared.noting(store.note)
        place = settle_place(directory.path, config.study, study.uuid, study.stored_name)
        store.settle_uuid(place)
        # Delivery starts once the study has agreed, since it creates a missing MLflow database.
        delivery: DeliverySupervisor | NoDelivery = NoDelivery()
        if config.tracking.uses_mlflow:
            scope = store.delivery_scope()
            delivery = DeliverySupervisor.start(
                directory.path,
                config.tracking,
                deliverer,
                study=StudyRef(place.study_uuid, place.name, place.former_names),
                n_known_trials=scope.n_known_trials,
                before_trials=scope.before_trials and prepared.purpose.checks_tracking,
                shared=scope.shared,
                niceness=machines.niceness,
            )
        stack.callback(delivery.stop)
        if log.record.edits != prepared.edits:
            raise StudyInUseError(
                f"study.name={config.study.name}: it was edited while this sweep loaded; give the "
                "command again."
            )
        prepared = prepared.noting(changed_code_note(prepared, log.record))
        delivery.wait_usable(READY_SECONDS)
        prepared = prepared.noting(store.restore())
        store_config(directory, stored_config)
        executor = machines.executor(prepared, directory, place.study_uuid)
        stack.callback(executor.close)
        outside = open_outside_trials(prepared, study, log, directory.path)
        yield SweepParts(prepared, directory, machines, store, delivery, executor, outside)
