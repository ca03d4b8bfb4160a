"""The store that MLflow writes to inside a trial: its calls become what the trial is told.

MLflow keeps one for its process. Runs are whatever the objective makes of them; what it reads back
is what it has logged, and no other trial's. There are no traces here, and no registered models.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    RunInfo,
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
from automl.tracking.inside import mlflow_entities
from automl.tracking.inside.running_trials import (
    MlflowTrial,
    NoTrialError,
    current_trial,
    find_trial_of_run,
    has_trials,
    join_trial,
    remark_once,
)
from automl.tracking.inside.runs import ChangedParamError, LoggedRun
from automl.tracking.inside.wire import LOG_ADDRESS_VARIABLE, RemoteTrialSide
from automl.tracking.view.run_update import clean_key
from automl.trial import LoggedPoint

_DEFAULT = "0"
"""MLflow's experiment where none was chosen."""
_NOTES = {MLFLOW_RUN_NOTE: "description"}
"""Tags of MLflow's own that say what the user wrote, and what they are called in the trial's run,
where MLflow's are the sweep's."""


class TrialStore(AbstractStore):
    """See the module. Any thread may call it; errors are MLflow's, but for a trial's end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()  # guards the two below
        self._experiments = {_DEFAULT: "Default"}
        """Names by id; nothing else is known of them."""
        self._models: dict[str, LoggedModel] = {}

    # --- experiments: whatever the objective calls them, its runs stand in the study's -----------

    def get_experiment(self, experiment_id: str) -> Experiment:
        with self._lock:
            return mlflow_entities.to_experiment(
                experiment_id, self._experiments.get(experiment_id, experiment_id)
            )

    def get_experiment_by_name(self, experiment_name: str) -> Experiment | None:
        with self._lock:
            found = [i for i, name in self._experiments.items() if name == experiment_name]
        return mlflow_entities.to_experiment(found[0], experiment_name) if found else None

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
            every = [
                mlflow_entities.to_experiment(i, name) for i, name in self._experiments.items()
            ]
        found = SearchExperimentsUtils.filter(every, filter_string)  # type: ignore[no-untyped-call]
        return PagedList(*_page(found, page_token, max_results))

    def delete_experiment(self, experiment_id: str) -> None:
        """Nothing: the study's stays."""

    restore_experiment = delete_experiment

    def rename_experiment(self, experiment_id: str, new_name: str) -> None:
        with self._lock:
            self._experiments[experiment_id] = new_name

    def set_experiment_tag(self, experiment_id: str, tag: object) -> None:
        """Nothing: the study's has the sweep's."""

    # --- runs ------------------------------------------------------------------------------------

    def create_run(
        self,
        experiment_id: str | None,
        user_id: str,
        start_time: int,
        tags: Sequence[RunTag] | None,
        run_name: str | None,
    ) -> Run:
        noted = {tag.key: tag.value for tag in tags or ()}
        with _translated():
            trial = _current()
        with trial.lock:
            run = trial.runs.begin(
                run_name or noted.get(MLFLOW_RUN_NAME),
                experiment_id=experiment_id or _DEFAULT,
                user=user_id,
                start_ms=start_time,
            )
            run.tags[MLFLOW_RUN_NAME] = run.name
        self._log(trial, run, tags=noted)
        return mlflow_entities.to_mlflow_run(run, trial.folder(run))

    def get_run(self, run_id: str) -> Run:
        with self._run(run_id) as (trial, run):
            return mlflow_entities.to_mlflow_run(run, trial.folder(run))

    def update_run_info(
        self, run_id: str, run_status: int | None, end_time: int | None, run_name: str | None
    ) -> RunInfo:
        """Of the objective's run alone: how the trial ends is the sweep's to say."""
        with self._run(run_id) as (trial, run):
            if run_status is not None:
                run.status, run.end_ms = mlflow_entities.to_run_status(run_status), end_time
            if run_name:
                run.name = run.tags[MLFLOW_RUN_NAME] = run_name
            return mlflow_entities.to_mlflow_run(run, trial.folder(run)).info

    def delete_run(self, run_id: str) -> None:
        with self._run(run_id) as (_, run):
            run.deleted = True

    def restore_run(self, run_id: str) -> None:
        with self._run(run_id) as (_, run):
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
        """Those of this trial."""
        with _translated():
            trial = _current()
        stages = LifecycleStage.view_type_to_stages(run_view_type)
        with trial.lock:
            every = [mlflow_entities.to_mlflow_run(run, trial.folder(run)) for run in trial.runs]
        here = [
            run
            for run in every
            if run.info.experiment_id in experiment_ids and run.info.lifecycle_stage in stages
        ]
        found = SearchUtils.filter(here, filter_string)  # type: ignore[no-untyped-call]
        ordered = SearchUtils.sort(found, order_by)  # type: ignore[no-untyped-call]
        return _page(ordered, page_token, max_results)

    def get_metric_history(
        self,
        run_id: str,
        metric_key: str,
        max_results: int | None = None,
        page_token: str | None = None,
    ) -> PagedList[Any]:
        with self._run(run_id) as (_, run):
            points = run.history.get(metric_key, ())
            return PagedList([mlflow_entities.to_metric(point) for point in points], None)

    # --- what is logged --------------------------------------------------------------------------

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
        with _translated():
            trial, run = find_trial_of_run(run_id)
        self._log(
            trial,
            run,
            points,
            {param.key: str(param.value) for param in params},
            {tag.key: str(tag.value) for tag in tags},
        )

    def delete_tag(self, run_id: str, key: str) -> None:
        """In the trial's run it becomes empty: it was told."""
        with self._run(run_id) as (trial, run):
            if run.tags.pop(key, None) is not None:
                self._log(trial, run, tags={key: ""})
                run.tags.pop(key, None)

    def log_inputs(
        self, run_id: str, datasets: Sequence[Any] | None = None, models: object = None
    ) -> None:
        with self._run(run_id) as (trial, run):
            run.inputs += datasets or ()
            noted = {
                f"dataset.{clean_key(i.dataset.name)}": i.dataset.digest for i in datasets or ()
            }
            self._log(trial, run, tags=noted)

    def log_outputs(self, run_id: str, models: object) -> None:
        """Nothing: a model's files are the trial's artifacts."""

    def record_logged_model(self, run_id: str, mlflow_model: object) -> None:
        """Likewise."""

    def link_traces_to_run(self, trace_ids: object, run_id: str) -> None:
        """Nothing: there are no traces."""

    # --- models ----------------------------------------------------------------------------------

    def create_logged_model(
        self,
        experiment_id: str = _DEFAULT,
        name: str | None = None,
        source_run_id: str | None = None,
        tags: Any = None,
        params: Any = None,
        model_type: str | None = None,
    ) -> LoggedModel:
        """Its files are artifacts of its run, in a folder of its name."""
        with _translated():
            trial = _current() if source_run_id is None else find_trial_of_run(source_run_id)[0]
        folder = trial.side.folder
        if source_run_id is not None:
            folder = trial.folder(find_trial_of_run(source_run_id)[1])
        called = clean_key(name or "model").replace("/", "_")
        with self._lock:
            taken = {model.artifact_location for model in self._models.values()}
            place, number = (folder / called).as_uri(), 1
            while place in taken:
                number += 1
                place = (folder / f"{called}-{number}").as_uri()
            now = int(time.time() * 1000)
            model = LoggedModel(
                experiment_id=experiment_id,
                model_id=f"m-{uuid4().hex}",
                name=name or called,
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
        self,
        experiment_ids: Sequence[str],
        filter_string: str | None = None,
        datasets: object = None,
        max_results: int | None = None,
        order_by: object = None,
        page_token: str | None = None,
    ) -> PagedList[Any]:
        """Those of these experiments, whatever is asked of them besides."""
        with self._lock:
            models = list(self._models.values())
        return PagedList([m for m in models if m.experiment_id in experiment_ids], None)

    # --- inside ----------------------------------------------------------------------------------

    def _log(
        self,
        trial: MlflowTrial,
        run: LoggedRun,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `TrialStopped` where the trial need not go on."""
        with trial.lock:
            with _translated():
                told = trial.runs.log(run, points, params or {})
            run.tags.update(tags or {})
            run.name = run.tags.get(MLFLOW_RUN_NAME, run.name)
            for text in told.remarks:
                remark_once(text)
            noted = {_NOTES.get(name, name): text for name, text in (tags or {}).items()}
            with _translated():
                trial.tell(told.points, told.params, noted)

    @contextmanager
    def _run(self, run_id: str) -> Iterator[tuple[MlflowTrial, LoggedRun]]:
        with _translated():
            trial, run = find_trial_of_run(run_id)
        with trial.lock:
            yield trial, run


def _current() -> MlflowTrial:
    """The trial that this process carries out, or is a part of. Raises NoTrialError."""
    address = os.environ.get(LOG_ADDRESS_VARIABLE)
    if not address or has_trials():
        return current_trial()
    with _joining:
        return current_trial() if has_trials() else join_trial(RemoteTrialSide(address))


_joining = threading.Lock()


def _page(found: object, token: str | None, max_results: int) -> tuple[list[Any], str | None]:
    page, token = SearchUtils.paginate(found, token, max_results)  # type: ignore[no-untyped-call]
    return page, token


@contextmanager
def _translated() -> Iterator[None]:
    """Our errors as MLflow's, which an objective may expect."""
    try:
        yield
    except NoTrialError as error:
        raise MlflowException(str(error.args[0]), RESOURCE_DOES_NOT_EXIST) from error
    except ChangedParamError as error:
        raise MlflowException(str(error), INVALID_PARAMETER_VALUE) from error
