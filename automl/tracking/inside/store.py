"""The store that MLflow writes to inside a trial: it passes MLflow's calls on to the trial.

MLflow keeps one store for its process. The objective may make any number of runs. It reads back
only what it has logged itself, and nothing of other trials. The store has no traces and no
registered models.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from mlflow.entities import (
    Experiment,
    LifecycleStage,
    LoggedModel,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunData,
    RunInfo,
    RunInputs,
    RunStatus,
    RunTag,
    ViewType,
)
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.tracking.abstract_store import AbstractStore
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE
from mlflow.utils.search_utils import SearchExperimentsUtils, SearchUtils
from mlflow.utils.validation import _validate_batch_log_data

from automl.record.texts import fit_line
from automl.tracking.inside.running_trials import (
    LOG_ADDRESS_VARIABLE,
    MlflowTrial,
    NoTrialError,
    RemoteTrialSide,
    current_trial,
    find_trial_of_run,
    has_trials,
    join_trial,
    remark_once,
)
from automl.tracking.inside.runs import ChangedParamError, LoggedRun
from automl.tracking.view.run_update import clean_key
from automl.trial import LoggedPoint


def to_experiment(experiment_id: str, name: str) -> Experiment:
    return Experiment(experiment_id, name, "", LifecycleStage.ACTIVE)


def to_metric(point: LoggedPoint) -> Metric:
    return Metric(point.name, point.value, point.time_ms, point.step)


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


_DEFAULT_EXPERIMENT = "0"
"""Id of MLflow's experiment for objectives that choose none."""
_RENAMED_TAGS = {MLFLOW_RUN_NOTE: "description"}
"""MLflow's own tags that hold the user's texts, and their names in the trial's run.

In the trial's run MLflow's own names belong to the sweep."""


class TrialStore(AbstractStore):
    """An MLflow store that passes an objective's values on to its trial.

    Any thread may call it. It raises MLflow's own errors, and `TrialStopped` when a trial need not
    go on.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()  # guards the two attributes below
        self._experiments = {_DEFAULT_EXPERIMENT: "Default"}
        """Names of experiments by id; the store knows nothing else about them."""
        self._models: dict[str, LoggedModel] = {}

    # --- experiments: all runs stand in the study's, whatever the objective calls its own --------

    def get_experiment(self, experiment_id: str) -> Experiment:
        with self._lock:
            return to_experiment(experiment_id, self._experiments.get(experiment_id, experiment_id))

    def get_experiment_by_name(self, experiment_name: str) -> Experiment | None:
        with self._lock:
            found = [i for i, name in self._experiments.items() if name == experiment_name]
        return to_experiment(found[0], experiment_name) if found else None

    def create_experiment(self, name: str, artifact_location: object, tags: object) -> str:
        with self._lock:
            experiment_id = str(len(self._experiments))
            self._experiments[experiment_id] = name
        remark_once(
            f"its experiment {fit_line(str(name), 100)} is not made, as a trial's run stands in "
            "the experiment of its study"
        )
        return experiment_id

    def search_experiments(
        self,
        view_type: int = ViewType.ACTIVE_ONLY,
        max_results: int = 1000,
        filter_string: str | None = None,
        order_by: list[str] | None = None,
        page_token: str | None = None,
    ) -> PagedList[Any]:
        with self._lock:
            experiments = [to_experiment(i, name) for i, name in self._experiments.items()]
        found = SearchExperimentsUtils.filter(experiments, filter_string)  # type: ignore[no-untyped-call]
        return PagedList(*_page(found, page_token, max_results))

    def delete_experiment(self, experiment_id: str) -> None:
        """Do nothing: the study's experiment stays."""

    restore_experiment = delete_experiment

    def rename_experiment(self, experiment_id: str, new_name: str) -> None:
        with self._lock:
            self._experiments[experiment_id] = new_name

    def set_experiment_tag(self, experiment_id: str, tag: object) -> None:
        """Do nothing: the study's experiment has the tags of the sweep."""

    # --- runs ------------------------------------------------------------------------------------

    def create_run(
        self,
        experiment_id: str | None,
        user_id: str,
        start_time: int,
        tags: Sequence[RunTag] | None,
        run_name: str | None,
    ) -> Run:
        texts = {tag.key: tag.value for tag in tags or ()}
        with _translate_to_mlflow():
            trial = _find_trial()
        with trial.lock:
            run = trial.runs.begin(
                run_name or texts.get(MLFLOW_RUN_NAME),
                experiment_id=experiment_id or _DEFAULT_EXPERIMENT,
                user=user_id,
                start_ms=start_time,
            )
            run.tags[MLFLOW_RUN_NAME] = run.name
        self._log(trial, run, tags=texts)
        return to_mlflow_run(run, trial.folder(run))

    def get_run(self, run_id: str) -> Run:
        with self._locked_run(run_id) as (trial, run):
            return to_mlflow_run(run, trial.folder(run))

    def update_run_info(
        self, run_id: str, run_status: int | None, end_time: int | None, run_name: str | None
    ) -> RunInfo:
        """Update the objective's run alone; the sweep decides how the trial ends."""
        with self._locked_run(run_id) as (trial, run):
            if run_status is not None:
                run.status, run.end_ms = str(RunStatus.to_string(run_status)), end_time
            if run_name:
                run.name = run.tags[MLFLOW_RUN_NAME] = run_name
            return to_mlflow_run(run, trial.folder(run)).info

    def delete_run(self, run_id: str) -> None:
        with self._locked_run(run_id) as (_, run):
            run.deleted = True

    def restore_run(self, run_id: str) -> None:
        with self._locked_run(run_id) as (_, run):
            run.deleted = False

    def _search_runs(
        self,
        experiment_ids: Sequence[str],
        filter_string: str | None,
        run_view_type: int,
        max_results: int,
        order_by: list[str] | None,
        page_token: str | None,
    ) -> tuple[list[Run], str | None]:
        """Return the runs of this trial that match."""
        with _translate_to_mlflow():
            trial = _find_trial()
        stages = LifecycleStage.view_type_to_stages(run_view_type)
        with trial.lock:
            all_runs = [to_mlflow_run(run, trial.folder(run)) for run in trial.runs]
        selected = [
            run
            for run in all_runs
            if run.info.experiment_id in experiment_ids and run.info.lifecycle_stage in stages
        ]
        found = SearchUtils.filter(selected, filter_string)  # type: ignore[no-untyped-call]
        ordered = SearchUtils.sort(found, order_by)  # type: ignore[no-untyped-call]
        return _page(ordered, page_token, max_results)

    def get_metric_history(
        self, run_id: str, metric_key: str, *_: object, **__: object
    ) -> PagedList[Any]:
        with self._locked_run(run_id) as (_trial, run):
            points = run.history.get(metric_key, ())
            return PagedList([to_metric(point) for point in points], None)

    # --- values ----------------------------------------------------------------------------------

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence[Metric],
        params: Sequence[Param],
        tags: Sequence[RunTag],
    ) -> None:
        _validate_batch_log_data(metrics, params, tags)  # type: ignore[no-untyped-call]
        points = [
            LoggedPoint(m.key, float(m.value), int(m.step or 0), int(m.timestamp)) for m in metrics
        ]
        with _translate_to_mlflow():
            trial, run = find_trial_of_run(run_id)
        self._log(
            trial,
            run,
            points,
            {param.key: str(param.value) for param in params},
            {tag.key: str(tag.value) for tag in tags},
        )

    def delete_tag(self, run_id: str, key: str) -> None:
        """Delete the tag here; in the trial's run its text becomes empty, because it was already
        passed on."""
        with self._locked_run(run_id) as (trial, run):
            if run.tags.pop(key, None) is not None:
                self._log(trial, run, tags={key: ""})
                run.tags.pop(key, None)

    def log_inputs(
        self, run_id: str, datasets: Sequence[Any] | None = None, models: object = None
    ) -> None:
        with self._locked_run(run_id) as (trial, run):
            run.inputs += datasets or ()
            digests = {
                f"dataset.{clean_key(i.dataset.name)}": i.dataset.digest for i in datasets or ()
            }
            self._log(trial, run, tags=digests)

    def log_outputs(self, run_id: str, models: object) -> None:
        """Do nothing: a model's files are the trial's artifacts."""

    def record_logged_model(self, run_id: str, mlflow_model: object) -> None:
        """Do nothing: a model's files are the trial's artifacts."""

    def link_traces_to_run(self, trace_ids: object, run_id: str) -> None:
        """Do nothing: the store has no traces."""

    # --- models ----------------------------------------------------------------------------------

    def create_logged_model(
        self,
        experiment_id: str = _DEFAULT_EXPERIMENT,
        name: str | None = None,
        source_run_id: str | None = None,
        tags: Any = None,
        params: Any = None,
        model_type: str | None = None,
    ) -> LoggedModel:
        """Return a new model, whose files are artifacts of its run in a folder of its name."""
        with _translate_to_mlflow():
            if source_run_id is None:
                folder = _find_trial().side.folder
            else:
                trial, run = find_trial_of_run(source_run_id)
                folder = trial.folder(run)
        folder_name = clean_key(name or "model").replace("/", "_")
        with self._lock:
            taken = {model.artifact_location for model in self._models.values()}
            place, number = (folder / folder_name).as_uri(), 1
            while place in taken:
                number += 1
                place = (folder / f"{folder_name}-{number}").as_uri()
            now = int(time.time() * 1000)
            model = LoggedModel(
                experiment_id=experiment_id,
                model_id=f"m-{uuid4().hex}",
                name=name or folder_name,
                artifact_location=place,
                creation_timestamp=now,
                last_updated_timestamp=now,
                model_type=model_type,
                source_run_id=source_run_id,
                status=LoggedModelStatus.PENDING,
                tags={tag.key: tag.value for tag in tags or ()},
                params={param.key: param.value for param in params or ()},
            )
            self._models[model.model_id] = model
        return model

    def get_logged_model(self, model_id: str, allow_deleted: bool = False) -> LoggedModel:
        with self._lock:
            if model_id not in self._models:
                raise MlflowException(f"Model '{model_id}' not found", RESOURCE_DOES_NOT_EXIST)
            return self._models[model_id]

    def finalize_logged_model(self, model_id: str, status: LoggedModelStatus) -> LoggedModel:
        model = self.get_logged_model(model_id)
        model.status = status
        return model

    def set_logged_model_tags(self, model_id: str, tags: Sequence[Any]) -> None:
        self.get_logged_model(model_id).tags.update({tag.key: tag.value for tag in tags})

    def delete_logged_model_tag(self, model_id: str, key: str) -> None:
        self.get_logged_model(model_id).tags.pop(key, None)

    def log_logged_model_params(self, model_id: str, params: Sequence[Any]) -> None:
        self.get_logged_model(model_id).params.update({p.key: p.value for p in params})

    def delete_logged_model(self, model_id: str) -> None:
        with self._lock:
            self._models.pop(model_id, None)

    def search_logged_models(
        self, experiment_ids: Sequence[str], *_: object, **__: object
    ) -> PagedList[Any]:
        """Return the models of these experiments; the other arguments are ignored."""
        with self._lock:
            models = list(self._models.values())
        return PagedList([m for m in models if m.experiment_id in experiment_ids], None)

    # --- helpers ---------------------------------------------------------------------------------

    def _log(
        self,
        trial: MlflowTrial,
        run: LoggedRun,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Pass values on to the trial. Raise `TrialStopped` when the trial need not go on."""
        with trial.lock:
            with _translate_to_mlflow():
                call = trial.runs.log(run, points, params or {})
            run.tags.update(tags or {})
            run.name = run.tags.get(MLFLOW_RUN_NAME, run.name)
            for text in call.remarks:
                remark_once(text)
            renamed = {_RENAMED_TAGS.get(name, name): text for name, text in (tags or {}).items()}
            with _translate_to_mlflow():
                trial.tell(call.points, call.params, renamed)

    @contextmanager
    def _locked_run(self, run_id: str) -> Iterator[tuple[MlflowTrial, LoggedRun]]:
        with _translate_to_mlflow():
            trial, run = find_trial_of_run(run_id)
        with trial.lock:
            yield trial, run


def _find_trial() -> MlflowTrial:
    """Return the trial that this process carries out or is a part of. Raise NoTrialError."""
    address = os.environ.get(LOG_ADDRESS_VARIABLE)
    if not address or has_trials():
        return current_trial()
    with _join_lock:
        return current_trial() if has_trials() else join_trial(RemoteTrialSide(address))


_join_lock = threading.Lock()


def _page(found: object, token: str | None, max_results: int) -> tuple[list[Any], str | None]:
    page, token = SearchUtils.paginate(found, token, max_results)  # type: ignore[no-untyped-call]
    return page, token


@contextmanager
def _translate_to_mlflow() -> Iterator[None]:
    """Raise our errors within the block as MLflow's, which an objective may expect."""
    try:
        yield
    except NoTrialError as error:
        raise MlflowException(str(error.args[0]), RESOURCE_DOES_NOT_EXIST) from error
    except ChangedParamError as error:
        raise MlflowException(str(error), INVALID_PARAMETER_VALUE) from error
