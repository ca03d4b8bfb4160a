"""Runs in MLflow, through its public client: found, made, written, ended.

The only module that calls `MlflowClient` in a sweep. It knows runs, not trials: what to write comes
as a `RunUpdate`. Errors come out as one of three: try again, the run was deleted, it is gone.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from automl.tracking.cleaning import MAX_TAG_CHARACTERS, cut
from automl.tracking.run_update import REFUSED, STUDY, TRIAL, RunUpdate
from automl.tracking.store import explain
from automl.tracking.uri import TrackingUri

ARTIFACT_FOLDER = "checkpoints"
_PAGE = 1000
_REFUSALS = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")

logger = logging.getLogger(__name__)


class NotTakenError(Exception):
    """Raised when MLflow does not take something now: a dead server, a locked database."""


class DeletedError(Exception):
    """Raised when a run or its experiment was deleted in the UI; both can be restored."""


class GoneError(Exception):
    """Raised when a run or experiment that was there is not: the store was replaced or purged."""


class _RefusedError(NotTakenError):
    """Raised when MLflow will never take a value."""


class MlflowRuns:
    """The runs of one store. `refused` is told of what MLflow will never take, in words."""

    def __init__(
        self, client: MlflowClient, uri: TrackingUri, refused: Callable[[str], None]
    ) -> None:
        self._client = client
        self._uri = uri
        self._refused = refused
        self._artifact_uris: dict[str, str] = {}

    def open_experiment(self, name: str) -> str:
        """The id of the experiment, made where it is missing, restored where it was deleted."""
        with self._translated():
            experiment = self._client.get_experiment_by_name(name)
            if experiment is None:
                return self._make_experiment(name)
            if experiment.lifecycle_stage != "active":
                self._client.restore_experiment(experiment.experiment_id)
            return str(experiment.experiment_id)

    def holds(self, run_id: str, study_uuid: str) -> bool:
        """Whether the store has this run, and it is the study's."""
        with self._translated():
            try:
                run = self._client.get_run(run_id)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return False
                raise
        return bool(run.data.tags.get(STUDY) == study_uuid)

    def find(self, experiment: str, tags: Mapping[str, str], keep: str | None = None) -> str | None:
        """The run with these tags. Doubles of it (a create whose answer was lost) are deleted."""
        terms = (f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs = list(self._search(experiment, " and ".join(terms)))
        return self._only(runs, keep)

    def find_trials(self, experiment: str, study_uuid: str) -> dict[int, str]:
        """All runs of a study's trials, by trial number."""
        by_trial: dict[int, list[Run]] = defaultdict(list)
        for run in self._search(experiment, f"tags.`{STUDY}` = '{study_uuid}'"):
            number = run.data.tags.get(TRIAL)
            if number is not None:
                by_trial[int(number)].append(run)
        only = {number: self._only(runs) for number, runs in by_trial.items()}
        return {number: run_id for number, run_id in only.items() if run_id is not None}

    def create(self, experiment: str, update: RunUpdate) -> str:
        """Make the run with all its tags. After an error it may be there or not: look first."""
        with self._translated():
            run = self._client.create_run(
                experiment,
                start_time=update.start_ms,
                tags={**update.key, **update.birth_tags, **update.tags},
                run_name=update.name,
            )
        run_id = str(run.info.run_id)
        self._artifact_uris[run_id] = run.info.artifact_uri
        return run_id

    def write(self, run_id: str, update: RunUpdate, *, created: bool, study: Path) -> None:
        """Write what is new; a run just `created` has its tags and lacks its params.

        Artifacts stand in the directory `study`.
        """
        params = update.params if update.begins or created else {}
        tags = {} if created else update.tags
        self._log(
            run_id,
            [Metric(p.key, p.value, p.time_ms, p.step) for p in update.metrics],
            [Param(key, value) for key, value in params.items()],
            [RunTag(key, value) for key, value in tags.items()],
        )
        refused = [*update.refused]
        for path in update.artifacts:
            if is_below(study, path):
                self._store_artifact(run_id, study / path)
            else:
                refused.append(f"{path} is a link out of its place; it was not stored")
        if refused:
            self._note_refused(run_id, refused)
        if update.status is None:
            return
        with self._translated():
            if update.end_ms is None:
                self._client.update_run(run_id, status=update.status)
            else:
                self._client.set_terminated(run_id, update.status, update.end_ms)
        if update.end_ms is not None:
            self._artifact_uris.pop(run_id, None)

    def revive(self, experiment: str, run_id: str | None) -> None:
        """Restore what was deleted in the UI while its study goes on."""
        with self._translated():
            if self._client.get_experiment(experiment).lifecycle_stage != "active":
                self._client.restore_experiment(experiment)
            if run_id is None:
                return
            if self._client.get_run(run_id).info.lifecycle_stage != "active":
                self._client.restore_run(run_id)

    def _make_experiment(self, name: str) -> str:
        try:
            return str(self._client.create_experiment(name))
        except MlflowException as error:
            experiment = self._client.get_experiment_by_name(name)
            if experiment is None:
                raise
            logger.info("experiment %s was made by another process (%s)", name, error.error_code)
            return str(experiment.experiment_id)

    def _search(self, experiment: str, terms: str) -> Iterator[Run]:
        token = None
        while True:
            with self._translated():
                page = self._client.search_runs(
                    [experiment], terms, ViewType.ALL, max_results=_PAGE, page_token=token
                )
            yield from page
            token = page.token
            if not token:
                return

    def _only(self, runs: Sequence[Run], keep: str | None = None) -> str | None:
        """One run of those that are meant to be the same; the others are deleted."""

        def rank(run: Run) -> tuple[bool, bool, str]:
            info = run.info
            return info.run_id != keep, info.lifecycle_stage != "active", info.run_id

        ranked = sorted(runs, key=rank)
        for double in ranked[1:]:
            if double.info.lifecycle_stage == "active":
                with self._translated():
                    self._client.delete_run(double.info.run_id)
        return str(ranked[0].info.run_id) if ranked else None

    def _log(
        self, run_id: str, metrics: list[Metric], params: list[Param], tags: list[RunTag]
    ) -> None:
        # The client splits what exceeds 1,000 metrics, 100 params or 100 tags a call.
        try:
            with self._translated():
                self._client.log_batch(run_id, metrics, params, tags, synchronous=True)
        except _RefusedError:  # one bad value refuses all: lose only that one
            for metric in metrics:
                self._log_one(run_id, metrics=[metric])
            for param in params:
                self._log_one(run_id, params=[param])
            for tag in tags:
                self._log_one(run_id, tags=[tag])

    def _log_one(
        self,
        run_id: str,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        try:
            with self._translated():
                self._client.log_batch(run_id, metrics, params, tags, synchronous=True)
        except _RefusedError as error:
            self._refused(f"run {run_id}: {error}")

    def _store_artifact(self, run_id: str, path: Path) -> None:
        if not path.is_file():
            self._refused(f"run {run_id}: {path} is not there any more")
            return
        try:
            with self._translated():
                folder = self._artifact_folder(run_id) if self._uri.is_database else None
                if folder is None:
                    self._client.log_artifact(run_id, str(path), ARTIFACT_FOLDER)
                else:
                    place_file(path, folder / ARTIFACT_FOLDER)
        except (GoneError, _RefusedError) as error:  # a server that takes no artifacts
            self._refused(f"run {run_id}: {path.name} was not stored: {error}")

    def _note_refused(self, run_id: str, refused: Sequence[str]) -> None:
        """In the log, and on the run."""
        for text in refused:
            self._refused(f"run {run_id}: {text}")
        self._log(run_id, [], [], [RunTag(REFUSED, cut("; ".join(refused), MAX_TAG_CHARACTERS))])

    def _artifact_folder(self, run_id: str) -> Path | None:
        """Where the run's artifacts lie on this machine; None: in a bucket or behind a server."""
        uri = self._artifact_uris.get(run_id)
        if uri is None:
            uri = self._artifact_uris[run_id] = str(self._client.get_run(run_id).info.artifact_uri)
        if uri.startswith("/"):
            return Path(uri)
        parts = urlsplit(uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" and not parts.netloc else None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """MLflow's errors as ours, without credentials."""
        try:
            yield
        except MlflowException as error:
            text = explain(error, self._uri)
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise GoneError(text) from error
            if "must be in the 'active' state" in str(error):
                raise DeletedError(text) from error
            if error.error_code in _REFUSALS:
                raise _RefusedError(text) from error
            raise NotTakenError(text) from error
        except OSError as error:
            raise NotTakenError(explain(error, self._uri)) from error


def is_below(folder: Path, path: str) -> bool:
    """Whether no link, in whatever part of `path`, leads to another file."""
    return (folder / path).resolve() == folder.resolve() / path


def place_file(path: Path, folder: Path) -> None:
    """Put `path` into `folder`, whole or not at all; the same bytes on one disk are kept once.

    Checkpoints are replaced by renaming, never written in place: a hard link keeps its content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{path.name}.{os.getpid()}"
    beside.unlink(missing_ok=True)
    try:
        os.link(path, beside)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(path, beside)
    os.replace(beside, folder / path.name)
