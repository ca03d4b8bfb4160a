"""Converts what an objective has logged into MLflow's own entities.

It is a file of its own so that the runs (`runs.py`) stay free of MLflow.
"""

from __future__ import annotations

from pathlib import Path

from mlflow.entities import (
    Experiment,
    LifecycleStage,
    Metric,
    Param,
    Run,
    RunData,
    RunInfo,
    RunInputs,
    RunStatus,
    RunTag,
)

from automl.tracking.inside.runs import LoggedRun
from automl.trial import LoggedPoint


def to_experiment(experiment_id: str, name: str) -> Experiment:
    return Experiment(experiment_id, name, "", LifecycleStage.ACTIVE)


def to_metric(point: LoggedPoint) -> Metric:
    return Metric(point.name, point.value, point.time_ms, point.step)


def to_run_status(value: int | str) -> str:
    """Return the status as a word; MLflow gives a number or a word."""
    return value if isinstance(value, str) else str(RunStatus.to_string(value))


def to_mlflow_run(logged: LoggedRun, folder: Path) -> Run:
    """Return the run as the objective logged it, with its artifacts in `folder`."""
    info = RunInfo(
        run_id=logged.id,
        experiment_id=logged.experiment_id,
        user_id=logged.user,
        status=logged.status,
        start_time=logged.start_ms,
        end_time=logged.end_ms,
        lifecycle_stage=LifecycleStage.DELETED if logged.deleted else LifecycleStage.ACTIVE,
        artifact_uri=folder.as_uri(),
        run_name=logged.name,
    )
    data = RunData(
        [to_metric(point) for point in logged.latest.values()],
        [Param(name, text) for name, text in logged.params.items()],
        [RunTag(name, text) for name, text in logged.tags.items()],
    )
    return Run(info, data, RunInputs(list(logged.inputs)))
