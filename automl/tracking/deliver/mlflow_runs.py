"""Finds, creates, writes and ends runs in MLflow, through MLflow's public client.

During a sweep no other module writes runs through `MlflowClient`. The module knows runs, not
trials: a `RunUpdate` says what to write. Its errors tell the caller to try again, that the run was
deleted, or that it is gone. A single value that the store will never take is left out, and the
run's tag `automl.refused` says so.

Several threads write at a time, each a whole trial's run, as a run's four requests are a few
milliseconds of Python and the rest is waiting for the server (`experiments/018-mlflow-server`).
Only its writer touches the state of a run.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType

from automl.record.study_files import CHECKPOINTS_FOLDER, DELIVERY_LOG, PROGRAM_FILES_FOLDER
from automl.tracking.deliver.artifacts import ArtifactsElsewhereError, RunArtifacts
from automl.tracking.mlflow_store import (
    DoubtfulCallError,
    NotDeliveredError,
    RunDeletedError,
    RunGoneError,
    ValueRefusedError,
    repeat_lost,
    translate_errors,
)
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import (
    KIND_TAG,
    REFUSED_TAG,
    STORE_TAG,
    STUDY_TAG,
    TRIAL_TAG,
    RunUpdate,
    StudyRef,
    clean_tags,
)

MAX_WRITERS = 4
"""Number of writers to a server. A database has one, as MLflow's SQL store starves its own pool of
connections."""


def write_all(numbers: Iterable[int], write: Callable[[int], None], n_writers: int) -> None:
    """Call `write` for each number, in their order, by up to `n_writers` threads at a time.

    A first NotDeliveredError stops no other call, and is raised at the end. After a second one, or
    any other error, no more calls begin, as the fault is not that of a single trial. Return or
    raise when every call that has begun has ended.
    """
    not_taken: list[NotDeliveredError] = []
    others: list[BaseException] = []

    def attempt(number: int) -> None:
        if others or len(not_taken) > 1:
            return
        try:
            write(number)
        except NotDeliveredError as error:
            not_taken.append(error)
        except BaseException as error:  # noqa: BLE001  # raised when all calls have ended
            others.append(error)

    if n_writers == 1:
        for number in numbers:
            attempt(number)
    else:
        with ThreadPoolExecutor(n_writers, "mlflow-writer") as pool:
            pool.map(attempt, numbers)
    for error in (*others, *not_taken):
        raise error


ARTIFACT_FOLDER = CHECKPOINTS_FOLDER
_PAGE = 1000
MAX_REFUSALS = 20
"""Number of refusals that a run's tag lists."""
N_PROOFS = 3
"""Number of attempts at a doubtful value, each after a value that MLflow takes."""

logger = logging.getLogger(__name__)


_Value: TypeAlias = Metric | Param | RunTag
_P = ParamSpec("_P")
_T = TypeVar("_T")


class MlflowRuns:
    """The runs of one store. `report_refusal` gets a text for each value that is left out."""

    def __init__(
        self, client: MlflowClient, uri: TrackingUri, report_refusal: Callable[[str], None]
    ) -> None:
        self._client = client
        self._uri = uri
        self._report_refusal = report_refusal
        self._artifacts = RunArtifacts(client, uri)
        self._refusals: dict[str, list[str]] = {}
        """Texts of the values that were left out, by run, while the run is open."""

    @property
    def may_make_doubles(self) -> bool:
        """Return whether a request can arrive twice, as the network lies between."""
        return not self._uri.is_database

    @property
    def n_writers(self) -> int:
        """Return how many threads may write at a time, each to another run."""
        return MAX_WRITERS if self._uri.is_server else 1

    def open_experiment(self, name: str) -> str:
        """Return the id of the experiment; create it if it is missing, restore it if deleted."""
        experiment = self._ask(self._client.get_experiment_by_name, name)
        if experiment is None:
            return self._create_experiment(name)
        if experiment.lifecycle_stage != "active":
            self._set_stage(experiment.experiment_id, "active")
        return str(experiment.experiment_id)

    def find_study(self, study: StudyRef, parents: Iterable[str]) -> str | None:
        """Return the id of the study's experiment, even if it is deleted; None: there is none.

        It has the study's own run, which may be one of `parents`, or else one of its names.
        """
        for parent in parents:
            if (found := self.find_experiment_of_run(parent, study.uuid)) is not None:
                return found
        names = map(self.find_experiment, (study.name, *study.former_names))
        return next((found for found in names if found is not None), None)

    def store_id(self, experiment: str) -> str:
        """Return the id of the store that has this experiment, whatever the store's address is.

        The experiment is made with it as a tag. A SQLite file is noted there, too, so that a copy
        of it is another store. All who ask at once get the same id.
        """
        found = self._ask(self._client.get_experiment, experiment)
        tag = found.tags.get(STORE_TAG) or f"{experiment}-{found.creation_time}"
        store_id, _, known_file = tag.partition(" ")
        if self._uri.sqlite_path is None:
            return store_id
        file = str(self._uri.sqlite_path.stat().st_ino)  # the same on all who mount its folder
        if known_file and known_file != file:
            store_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{store_id} {file}").hex
        if known_file != file:
            tag = f"{store_id} {file}"
            self.revive(experiment, None)
            self._ask(self._client.set_experiment_tag, experiment, STORE_TAG, tag)
        return store_id

    def find_experiment(self, name: str) -> str | None:
        """Return the id of the experiment, even if it is deleted; None if there is none."""
        experiment = self._ask(self._client.get_experiment_by_name, name)
        return None if experiment is None else str(experiment.experiment_id)

    def keep_experiment(self, experiment: str, study: StudyRef) -> None:
        """Restore the study's experiment if it was deleted; rename it if the study was renamed.

        It keeps a name that a user gave it in the UI, or that it shares with another study.
        """
        found = self._ask(self._client.get_experiment, experiment)
        if found.lifecycle_stage != "active":
            self._set_stage(experiment, "active")
        if found.name == study.name or found.name not in study.former_names:
            return
        parents = self._search(experiment, f"tags.`{KIND_TAG}` = 'study'")
        if self.find_experiment(study.name) is not None or any(
            run.data.tags.get(STUDY_TAG) != study.uuid for run in parents
        ):
            logger.warning("%s: its runs stay in experiment %s", study.name, found.name)
            return
        self._ask(self._client.rename_experiment, experiment, study.name)

    def find_experiment_of_run(self, run_id: str, study_uuid: str) -> str | None:
        """Return the experiment of a run; None if the store has no such run of this study."""
        try:
            run = self._ask(self._client.get_run, run_id)
        except RunGoneError:
            return None
        ours = run.data.tags.get(STUDY_TAG) == study_uuid
        return str(run.info.experiment_id) if ours else None

    def drop_known_end_metrics(self, run_id: str, update: RunUpdate) -> RunUpdate:
        """Return `update` without those metrics of a trial's end that the run has already.

        They may have been delivered before under another time, and would then stand there twice.
        """
        present = self._ask(self._client.get_run, run_id).data.metrics
        known = [key for key in update.once if key in present]
        new = (p for p in update.metrics if p.name not in known or p.value != present[p.name])
        return replace(update, metrics=tuple(new))

    def share_view(self, experiment: str, tag: str, view: str) -> None:
        """Store a view of the experiment's runs, unless it is there; a failure is only logged."""
        try:
            if self._ask(self._client.get_experiment, experiment).tags.get(tag) != view:
                self._ask(self._client.set_experiment_tag, experiment, tag, view)
        except (NotDeliveredError, RunDeletedError) as error:
            logger.warning("the view of the runs is not shared: %s", error)

    def find(self, experiment: str, tags: Mapping[str, str], keep: str | None = None) -> str | None:
        """Return the run with these tags, and delete doubles: creates whose answer was lost."""
        terms = (f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs = list(self._search(experiment, " and ".join(terms)))
        return self._keep_one(runs, keep)

    def find_trials(self, experiment: str, study_uuid: str) -> dict[int, str]:
        """Return the run of each of a study's trials, by trial number; delete doubles."""
        by_trial: dict[int, list[Run]] = defaultdict(list)
        for run in self._search(experiment, f"tags.`{STUDY_TAG}` = '{study_uuid}'"):
            number = run.data.tags.get(TRIAL_TAG)
            if number is not None:
                by_trial[int(number)].append(run)
        only = {number: self._keep_one(runs) for number, runs in by_trial.items()}
        return {number: run_id for number, run_id in only.items() if run_id is not None}

    def delete_doubles(self, experiment: str, study_uuid: str, kept: Mapping[int, str]) -> None:
        """Delete runs that a server made of a create that arrived twice (a proxy's second try).

        A double has its tags and nothing else, hence this looks among the RUNNING runs: these are
        as few as the running trials, however many trials there were. `kept` are the trials' runs.
        """
        terms = f"attributes.status = 'RUNNING' and tags.`{STUDY_TAG}` = '{study_uuid}'"
        for run in list(self._search(experiment, terms, ViewType.ACTIVE_ONLY)):
            number = int(run.data.tags.get(TRIAL_TAG, -1))
            if run.info.run_id != kept.get(number, run.info.run_id):
                self._ask(self._client.delete_run, run.info.run_id)

    def create(self, experiment: str, update: RunUpdate) -> str:
        """Create the run with all its tags. After an error it may exist or not: look first."""
        with translate_errors(self._uri):
            run = self._client.create_run(
                experiment,
                start_time=update.start_ms,
                tags={**update.key, **update.birth_tags, **update.tags},
                run_name=update.name,
            )
        run_id = str(run.info.run_id)
        self._artifacts.note(run_id, run.info.artifact_uri)
        return run_id

    def delete(self, run_id: str) -> None:
        """Delete a run that was made twice."""
        self._ask(self._client.delete_run, run_id)
        self._artifacts.forget(run_id)

    def delete_studies(self, experiment: str, uuids: Collection[str]) -> int:
        """Delete all runs of the studies, and return their number. If the experiment then has no
        run, it is deleted, too, under a name that leaves its own to later studies."""
        runs = list(self._search(experiment, "", ViewType.ACTIVE_ONLY))
        ours = [run.info.run_id for run in runs if run.data.tags.get(STUDY_TAG) in uuids]
        if len(ours) < len(runs):
            for run_id in ours:
                self._ask(self._client.delete_run, run_id)
            return len(ours)
        found = self._ask(self._client.get_experiment, experiment)
        if found.lifecycle_stage == "active":
            self.set_aside(experiment, f"{found.name} (deleted {experiment})")
        return len(ours)

    def set_aside(self, experiment: str, name: str) -> None:
        """Delete the experiment with its runs, under a name that leaves its own to later ones."""
        self._ask(self._client.rename_experiment, experiment, name)
        self._set_stage(experiment, "deleted")

    def remove_files(self, run_id: str) -> None:
        """Remove the checkpoints and program files of a run that has ended. A store that keeps them
        nevertheless is noted as a refusal."""
        try:
            self._ask(self._artifacts.remove, run_id, (ARTIFACT_FOLDER, PROGRAM_FILES_FOLDER))
        except (RunGoneError, ValueRefusedError, DoubtfulCallError) as error:
            self._report_refusal(f"run {run_id}: its files were not removed: {error}")

    def write(self, run_id: str, update: RunUpdate, *, created: bool, study: Path) -> None:
        """Write the new values; a run just `created` has its tags. Files stand in `study`."""
        params = {**(update.params if update.begins or created else {}), **update.logged_params}
        tags = {} if created else update.tags
        n_refusals = len(self._refusals.get(run_id, ()))
        values: list[_Value] = [Metric(p.name, p.value, p.time_ms, p.step) for p in update.metrics]
        values += [Param(key, value) for key, value in params.items()]
        values += [RunTag(key, value) for key, value in tags.items()]
        known = [RunTag(key, value) for key, value in update.key.items()]
        self._log(run_id, values, known)
        for text in update.refused:
            self._note_refusal(run_id, text)
        for path, below in (
            *((path, ARTIFACT_FOLDER) for path in update.artifacts),
            *((path, "") for path in update.files),
            *update.own_files,
        ):
            if is_path_below(study, path):
                self._store_artifact(run_id, study / path, below)
            else:
                self._note_refusal(run_id, f"{path} is a link out of its place; it was not stored")
        if len(refusals := self._refusals.get(run_id, ())) > n_refusals:
            text = clean_tags({REFUSED_TAG: "\n".join(refusals)})[REFUSED_TAG]
            self._log(run_id, [RunTag(REFUSED_TAG, text)], known)
        if update.status is None:
            return
        if update.end_ms is None:
            self._ask(self._client.update_run, run_id, status=update.status)
        else:
            self._ask(self._client.set_terminated, run_id, update.status, update.end_ms)
        if update.end_ms is not None:
            self._artifacts.forget(run_id)
            self._refusals.pop(run_id, None)

    def revive(self, experiment: str, run_id: str | None) -> None:
        """Restore an experiment and a run that were deleted in the UI while their study goes on."""
        if self._ask(self._client.get_experiment, experiment).lifecycle_stage != "active":
            self._set_stage(experiment, "active")
        if run_id is None:
            return
        if self._ask(self._client.get_run, run_id).info.lifecycle_stage != "active":
            self._ask(self._client.restore_run, run_id)

    def _ask(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what MLflow answers to a call that may be made twice; raise errors translated."""
        with translate_errors(self._uri):
            return repeat_lost(call, *args, **kwargs)

    def _set_stage(self, experiment: str, stage: str) -> None:
        """Delete or restore an experiment; a first request that arrived twice may have done it."""
        client = self._client
        try:
            self._ask(
                client.restore_experiment if stage == "active" else client.delete_experiment,
                experiment,
            )
        except RunGoneError:
            if self._ask(client.get_experiment, experiment).lifecycle_stage != stage:
                raise

    def _create_experiment(self, name: str) -> str:
        try:
            tags = {STORE_TAG: uuid.uuid4().hex}
            return str(self._ask(self._client.create_experiment, name, tags=tags))
        except NotDeliveredError as error:
            experiment = self.find_experiment(name)
            if experiment is None:
                raise
            logger.info("experiment %s was made before, or by another process: %s", name, error)
            return experiment

    def _search(self, experiment: str, terms: str, view: int = ViewType.ALL) -> Iterator[Run]:
        token = None
        while True:
            page = self._ask(
                self._client.search_runs,
                [experiment],
                terms,
                view,
                max_results=_PAGE,
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _keep_one(self, runs: Sequence[Run], keep: str | None = None) -> str | None:
        """Return one of several runs of the same trial or study, and delete the others."""

        def rank(run: Run) -> tuple[bool, bool, str]:
            info = run.info
            return info.run_id != keep, info.lifecycle_stage != "active", info.run_id

        ranked = sorted(runs, key=rank)
        for duplicate in ranked[1:]:
            if duplicate.info.lifecycle_stage == "active":
                self._ask(self._client.delete_run, duplicate.info.run_id)
        return str(ranked[0].info.run_id) if ranked else None

    def _log(self, run_id: str, values: Sequence[_Value], known: Sequence[_Value]) -> None:
        """Log `values` but those that MLflow will never take; it has taken `known` before."""
        if not values:
            return
        try:
            self._log_batch(run_id, values)
        except (ValueRefusedError, DoubtfulCallError) as error:
            if len(values) > 1:  # one bad value makes MLflow refuse all: look for it
                middle = len(values) // 2
                self._log(run_id, values[:middle], known)
                self._log(run_id, values[middle:], known)
            elif isinstance(error, ValueRefusedError) or self._is_hopeless(run_id, values, known):
                self._note_refusal(run_id, f"{_value_name(values[0])}: {error}")

    def _is_hopeless(self, run_id: str, value: Sequence[_Value], known: Sequence[_Value]) -> bool:
        """Return whether a doubtful value fails again and again while the store takes others.

        False means that it was taken after all. Raise NotDeliveredError when the store takes
        nothing now.
        """
        for _ in range(N_PROOFS):
            self._log_batch(run_id, known)
            try:
                self._log_batch(run_id, value)
            except DoubtfulCallError:
                continue
            return False
        return True

    def _log_batch(self, run_id: str, values: Sequence[_Value]) -> None:
        # The client splits what exceeds 1,000 metrics, 100 params or 100 tags a call.
        self._ask(
            self._client.log_batch,
            run_id,
            [value for value in values if isinstance(value, Metric)],
            [value for value in values if isinstance(value, Param)],
            [value for value in values if isinstance(value, RunTag)],
            synchronous=True,
        )

    def _note_refusal(self, run_id: str, text: str) -> None:
        refusals = self._refusals.setdefault(run_id, [])
        if len(refusals) < MAX_REFUSALS:
            refusals.append(text)
        elif len(refusals) == MAX_REFUSALS:
            refusals.append(f"and more: see {DELIVERY_LOG}")
        self._report_refusal(f"run {run_id}: {text}")

    def _store_artifact(self, run_id: str, path: Path, below: str) -> None:
        if not path.is_file():
            self._note_refusal(run_id, f"{path} is not there any more")
            return
        try:
            self._ask(self._artifacts.store, run_id, path, below)
        except (RunGoneError, ValueRefusedError, ArtifactsElsewhereError) as error:
            # The server takes no artifacts.
            self._note_refusal(run_id, f"{path.name} was not stored: {error}")


def _value_name(value: _Value) -> str:
    """Return a value's name for messages, such as `val_loss at step 7` or `param lr`."""
    if isinstance(value, Metric):
        return f"{value.key} at step {value.step}"
    return f"{'param' if isinstance(value, Param) else 'tag'} {value.key}"


def is_path_below(folder: Path, path: str) -> bool:
    """Return whether `path` lies below `folder`, with no link in it that leads elsewhere."""
    return (folder / path).resolve() == folder.resolve() / path
