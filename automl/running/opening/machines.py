"""The machines where a sweep's trials may run: this machine, or the nodes of a cluster.

`parts.py` opens the machines that the config names, and a sweep asks them for all that depends on
where its trials run. The nodes of a cluster are in `cluster_machines.py`.
"""

from __future__ import annotations

from typing import Protocol

from automl.config import ExecutionKind, StudyConfig
from automl.devices.device_reading import DeviceReader
from automl.devices.host import n_oom_kills
from automl.errors import AutoMLError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import Executor, InlineExecutor
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.record.study_directory import StudyDirectory
from automl.running.loop.messages import DeviceShortage
from automl.running.prepare.prepared_config import PreparedStudy
from automl.tracking.deliver.process import DELIVERY_NICENESS


class SweepMachines(Protocol):
    """The machines where the trials of one sweep may run."""

    @property
    def reader(self) -> DeviceReader: ...

    @property
    def niceness(self) -> int:
        """Niceness of the process that delivers to MLflow."""

    @property
    def checkpoints_are_here(self) -> bool:
        """Whether trials write their checkpoints on this machine."""

    def n_places(self, prepared: PreparedStudy) -> int:
        """Return the largest number of trials, or packs, at once, on silent devices included."""

    def n_threads(self, prepared: PreparedStudy) -> int:
        """Return the largest number of threads that may carry trials."""

    def executor(
        self, prepared: PreparedStudy, directory: StudyDirectory, study_uuid: str
    ) -> Executor:
        """Return the executor that runs the study's trials. Raises ConfigError."""

    def checkpoint_store(self, study: StudyConfig, study_uuid: str) -> CheckpointStore | None:
        """Return the store in which this machine keeps copies of checkpoints, or None."""

    def look_after(self, shortage: DeviceShortage | None) -> AutoMLError | None:
        """Ask for devices that are short, about once a second. Return the error that ends the sweep
        if the machines are lost."""

    def close(self) -> None:
        """Give the machines back. Call it when no trial runs any more."""


class ThisMachine:
    """The devices of the machine on which the sweep runs."""

    niceness = DELIVERY_NICENESS
    checkpoints_are_here = True

    def __init__(self, reader: DeviceReader) -> None:
        self.reader = reader

    def n_places(self, prepared: PreparedStudy) -> int:
        return prepared.limits.at_once(self.reader.addresses)

    def n_threads(self, prepared: PreparedStudy) -> int:
        return self.n_places(prepared)

    def executor(
        self, prepared: PreparedStudy, directory: StudyDirectory, study_uuid: str
    ) -> Executor:
        if prepared.config.execution.kind is ExecutionKind.inline:
            return InlineExecutor(prepared.entry, directory.files.logs)
        limits = worker_limits(prepared, self.n_places(prepared))
        return WorkersExecutor(prepared.entry, directory.files.logs, limits)

    def checkpoint_store(self, study: StudyConfig, study_uuid: str) -> CheckpointStore | None:
        return checkpoint_store(study, study_uuid)

    def look_after(self, shortage: DeviceShortage | None) -> AutoMLError | None:
        """Return None, since this machine has the devices that it has."""
        return None

    def close(self) -> None:
        self.reader.close()


def checkpoint_store(study: StudyConfig, study_uuid: str) -> CheckpointStore | None:
    """Return the store for copies of the study's checkpoints, or None if there is none."""
    return (
        None
        if study.checkpoint_copies is None
        else CheckpointStore(study.checkpoint_copies, study_uuid)
    )


def worker_limits(prepared: PreparedStudy, max_workers: int) -> WorkerLimits:
    """Return the limits of workers. They wait for a verdict at the study's own rungs."""
    execution = prepared.config.execution
    return WorkerLimits(
        max_workers=max_workers,
        trial_timeout_seconds=execution.trial_timeout_seconds,
        silence_timeout_seconds=execution.silence_timeout_seconds,
        recycle_after_trials=execution.recycle_after_trials,
        n_oom_kills=n_oom_kills,
        judging=JudgedReports(prepared.config.study.leading_metric, prepared.rungs),
    )
