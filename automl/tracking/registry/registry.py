"""MLflow's model registry: models logged on runs, and registered under one name.

Each call leaves things whole, or so that the same call goes on: a model is found again by the
digest of its file, and its version has all tags from its creation on. Runs are not touched, so that
one that has ended is not shown as running again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from automl.errors import AutoMLError, ConfigError
from automl.record.texts import redact
from automl.tracking.mlflow_store import explain_error
from automl.tracking.registry.model_versions import (
    DIGEST_TAG,
    SHARED_TAG,
    NewModel,
    RegisteredVersion,
    RunRef,
)
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import STUDY_TAG

VARIABLE = "MLFLOW_REGISTRY_URI"
"""Where MLflow's registry is another than the store of the runs."""
_ABSENT = "RESOURCE_DOES_NOT_EXIST"


class RegistryError(AutoMLError):
    """Raised when MLflow's registry cannot be used now."""


class ModelRegistry:
    """One registered model, which may not be there yet. Every call raises RegistryError."""

    def __init__(self, client: MlflowClient, uri: TrackingUri, name: str) -> None:
        self._client, self._uri, self.name = client, uri, name

    def refuse_taken(self, study_uuid: str, *, shared: bool) -> None:
        """Raises ConfigError where somebody else has the name; `shared`: this study names it, and
        joins the model of one that named it, too."""
        tags = self._tags()
        owner = study_uuid if tags is None else tags.get(STUDY_TAG, "")
        if owner == study_uuid:
            return
        if not owner:
            raise ConfigError(
                f"register.name={self.name}: another project has a registered model of this name, "
                "and nothing is added to it: choose another, register.name=NAME."
            )
        whose = f"register.name={self.name}: the registered model of this name is of another study"
        assert tags is not None, "it has an owner"
        if SHARED_TAG not in tags:
            raise ConfigError(
                f"{whose} of automl ({owner}), which shares it with none: choose another, "
                f"register.name=NAME, or have that study be registered with "
                f"register.name={self.name}, too."
            )
        if not shared:
            raise ConfigError(
                f"{whose} of automl ({owner}): choose another, register.name=NAME, or give this "
                f"one, register.name={self.name}, to have its champion challenged."
            )

    def claim(self, study_uuid: str, *, shared: bool, about: str = "") -> None:
        """Make it, described by `about`, unless it is there. Raises ConfigError as `refuse_taken`:
        another may have been faster."""
        tags = {STUDY_TAG: study_uuid} | ({SHARED_TAG: "true"} if shared else {})
        with self._asked():
            try:
                self._client.create_registered_model(self.name, tags, about or None)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
        self.refuse_taken(study_uuid, shared=shared)
        there = self._tags() or {}
        if shared and SHARED_TAG not in there and there.get(STUDY_TAG) == study_uuid:
            with self._asked():
                self._client.set_registered_model_tag(self.name, SHARED_TAG, "true")

    def _tags(self) -> dict[str, str] | None:
        """Of the registered model; None: there is no such."""
        with self._asked():
            try:
                return dict(self._client.get_registered_model(self.name).tags)
            except MlflowException as error:
                if error.error_code == _ABSENT:
                    return None
                raise

    def has_run(self, run: RunRef) -> bool:
        """Whether the store has it, and nobody threw it away."""
        with suppress(MlflowException):
            info = self._client.get_run(run.run).info
            return info.experiment_id == run.experiment and info.lifecycle_stage == "active"
        return False

    def versions(self) -> list[RegisteredVersion]:
        """All of them, the newest first."""
        found: list[RegisteredVersion] = []
        token = None
        with self._asked():
            while True:
                page = self._client.search_model_versions(f"name='{self.name}'", page_token=token)
                found += [_version(v) for v in page]
                token = page.token
                if not token:
                    return sorted(found, key=lambda version: -version.number)

    def alias(self, alias: str) -> int | None:
        """The number of the version that has it."""
        with self._asked():
            aliases = self._client.get_registered_model(self.name).aliases
        return int(aliases[alias]) if alias in aliases else None

    def download(self, version: RegisteredVersion, to: Path) -> Path:
        """The export in a version, below `to`: the folder, empty where it holds none. Nothing of it
        is run."""
        with self._asked():
            lies = self._client.get_model_version_download_uri(self.name, str(version.number))
            whole = Path(download_artifacts(lies, dst_path=str(to), tracking_uri=self._uri.text))
        return next((path.parent for path in whole.glob("artifacts/*/schema.json")), to)

    def put(self, model: NewModel, known: RegisteredVersion | None) -> RegisteredVersion:
        """Log the model on its run, and make a version of it; what is there already stays.

        `known` is its version, if there is one, which learns what is new to tell.
        """
        with self._asked():
            logged = self._logged(model)
            if logged.status != LoggedModelStatus.READY:
                self._upload(model, logged)
            self._show_on_run(model, logged)
            version = self._make(model, logged) if known is None else known
            if model.about != version.about and (model.metrics or not version.about):
                self._measure(model, logged)
                self._client.update_model_version(self.name, str(version.number), model.about)
            for key, value in model.tags.items():
                if version.tags.get(key) != value:
                    number = str(version.number)
                    self._client.set_model_version_tag(self.name, number, key, value)
            self._link(logged, version)
        return version

    def set_alias(self, alias: str, version: int) -> None:
        with self._asked():
            self._client.set_registered_model_alias(self.name, alias, str(version))

    def drop_alias(self, alias: str) -> None:
        with self._asked():
            self._client.delete_registered_model_alias(self.name, alias)

    def _logged(self, model: NewModel) -> LoggedModel:
        """The model in its experiment: found by its digest, or made."""
        wanted = f"tags.`{DIGEST_TAG}` = '{model.digest}' AND source_run_id = '{model.run.run}'"
        there = self._client.search_logged_models([model.run.experiment], wanted)
        if there:
            return there[0]
        return self._client.create_logged_model(
            model.run.experiment,
            model.name,
            source_run_id=model.run.run,
            tags={DIGEST_TAG: model.digest, **model.tags},
            params=dict(model.params),
        )

    def _upload(self, model: NewModel, logged: LoggedModel) -> None:
        """Its files, whole before it is called ready."""
        from automl.tracking.registry.model_folder import write_model_folder  # takes 2 s to load

        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder) / "model"
            write_model_folder(to, model, logged.model_id)
            self._client.log_model_artifacts(logged.model_id, str(to))
        self._measure(model, logged)
        self._client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)

    def _measure(self, model: NewModel, logged: LoggedModel) -> None:
        """Its metrics, which its run has, or has now, too; the same again changes nothing."""
        for point in model.metrics:
            self._client.log_metric(
                model.run.run,
                point.key,
                point.value,
                point.time_ms,
                point.step,
                model_id=logged.model_id,
            )

    def _show_on_run(self, model: NewModel, logged: LoggedModel) -> None:
        """In the column *Models*, once."""
        shown = self._client.get_run(model.run.run).outputs
        if shown is None or logged.model_id not in {m.model_id for m in shown.model_outputs}:
            output = LoggedModelOutput(logged.model_id, step=0)
            self._client.log_outputs(model.run.run, [output])

    def _make(self, model: NewModel, logged: LoggedModel) -> RegisteredVersion:
        """With all its tags at once: by one of them it is found again."""
        made = self._client.create_model_version(
            self.name,
            logged.artifact_location,  # `models:/…` would be looked up in the process's own store
            run_id=model.run.run,
            tags={DIGEST_TAG: model.digest, **model.tags},
            description=model.about,
            model_id=logged.model_id,
        )
        return _version(made)

    def _link(self, logged: LoggedModel, version: RegisteredVersion) -> None:
        """From the model to its versions, for the column *Models*."""
        entry = {"name": self.name, "version": version.number}
        entries = json.loads(logged.tags.get(MLFLOW_MODEL_VERSIONS) or "[]")
        if entry not in entries:
            tags = {MLFLOW_MODEL_VERSIONS: json.dumps([*entries, entry])}
            self._client.set_logged_model_tags(logged.model_id, tags)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """MLflow's errors as ours, without credentials."""
        try:
            yield
        except (MlflowException, OSError) as error:
            where = os.environ.get(VARIABLE)
            named = str(self._uri) if not where else f"{VARIABLE}={redact(where)}"
            raise RegistryError(
                f"{named}: MLflow's model registry cannot be used "
                f"({explain_error(error, self._uri)}); start that server, or mend the address."
            ) from error


def _version(found: ModelVersion) -> RegisteredVersion:
    return RegisteredVersion(int(found.version), dict(found.tags), found.description or "")
