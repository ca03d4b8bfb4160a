"""What an objective has logged, as MLflow's own values."""

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
    """MLflow tells it by number, or by word."""
    return value if isinstance(value, str) else str(RunStatus.to_string(value))


def to_mlflow_run(logged: LoggedRun, folder: Path) -> Run:
    """As the objective logged it; its artifacts go to `folder`."""
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
