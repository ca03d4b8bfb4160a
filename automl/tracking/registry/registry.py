"""Logs models on runs in MLflow, and registers them under one name in MLflow's model registry.

Each call leaves the registry complete, or in a state from which the same call goes on. A model is
found again by the digest of its file, and its version has all tags from its creation on. The status
of runs is not changed, so that a run that has ended is not shown as running again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from automl.config import TrackingConfig
from automl.errors import AutoMLError, ConfigError
from automl.record.texts import parse_json, redact_text
from automl.tracking.mlflow_loading import mute_mlflow_info
from automl.tracking.mlflow_store import explain_error, open_client
from automl.tracking.registry.model_versions import (
    DIGEST_TAG,
    SHARED_TAG,
    NewModel,
    RegisteredVersion,
    RunRef,
)
from automl.tracking.tracking_uri import TrackingUri, resolve_uri
from automl.tracking.view.run_update import STUDY_TAG

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

VARIABLE = "MLFLOW_REGISTRY_URI"
"""Variable that names MLflow's registry, where it is not in the store of the runs."""
_ABSENT_CODE = "RESOURCE_DOES_NOT_EXIST"


class RegistryError(AutoMLError):
    """Raised when MLflow's registry cannot be used now."""


def open_registry(config: TrackingConfig, name: str) -> ModelRegistry:
    """Return the registered model `name`, which may not exist yet.

    It is in the store of the runs, unless MLflow has another registry set. Raise ConfigError when
    the store of the runs does not answer.
    """
    uri = resolve_uri(config).absolute
    with mute_mlflow_info():
        return ModelRegistry(open_client(uri), uri, name)


class ModelRegistry:
    """A registered model, which may not exist yet. Every call may raise RegistryError."""

    def __init__(self, client: MlflowClient, uri: TrackingUri, name: str) -> None:
        self._client, self._uri, self.name = client, uri, name

    def refuse_taken(self, study_uuid: str, *, shared: bool) -> None:
        """Raise ConfigError when the name belongs to somebody else.

        With `shared` this study names the model itself, and may join the model of another study
        that did the same.
        """
        tags = self._tags()
        owner = study_uuid if tags is None else tags.get(STUDY_TAG, "")
        if owner == study_uuid:
            return
        if not owner:
            raise ConfigError(
                f"as={self.name}: another project has a registered model of this name, "
                "and nothing is added to it: choose another, as=NAME."
            )
        belongs = f"as={self.name}: the registered model of this name is of another study"
        assert tags is not None, "it has an owner"
        if SHARED_TAG not in tags:
            raise ConfigError(
                f"{belongs} of automl ({owner}), which shares it with none: choose another, "
                f"as=NAME, or have that study be registered with "
                f"as={self.name}, too."
            )
        if not shared:
            raise ConfigError(
                f"{belongs} of automl ({owner}): choose another, as=NAME, or give this "
                f"one, as={self.name}, to have its champion challenged."
            )

    def claim(self, study_uuid: str, *, shared: bool, about: str = "") -> None:
        """Create the registered model unless it exists. Raise as `refuse_taken` does."""
        tags = {STUDY_TAG: study_uuid} | ({SHARED_TAG: "true"} if shared else {})
        with self._translate_errors():
            try:
                self._client.create_registered_model(self.name, tags, about or None)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
        self.refuse_taken(study_uuid, shared=shared)
        current = self._tags() or {}
        if shared and SHARED_TAG not in current and current.get(STUDY_TAG) == study_uuid:
            with self._translate_errors():
                self._client.set_registered_model_tag(self.name, SHARED_TAG, "true")

    def _tags(self) -> dict[str, str] | None:
        """Return the tags of the registered model; None if it does not exist."""
        with self._translate_errors():
            try:
                return dict(self._client.get_registered_model(self.name).tags)
            except MlflowException as error:
                if error.error_code == _ABSENT_CODE:
                    return None
                raise

    def has_run(self, run: RunRef) -> bool:
        """Return whether the store has the run, and it is not deleted."""
        with suppress(MlflowException):
            info = self._client.get_run(run.run).info
            return info.experiment_id == run.experiment and info.lifecycle_stage == "active"
        return False

    def versions(self) -> list[RegisteredVersion]:
        """Return all versions of the model, the newest first."""
        found: list[RegisteredVersion] = []
        token = None
        with self._translate_errors():
            while True:
                page = self._client.search_model_versions(f"name='{self.name}'", page_token=token)
                found += [_version(v) for v in page]
                token = page.token
                if not token:
                    return sorted(found, key=lambda version: -version.number)

    def alias(self, alias: str) -> int | None:
        """Return the number of the version that has the alias; None if no version has it."""
        with self._translate_errors():
            aliases = self._client.get_registered_model(self.name).aliases
        return int(aliases[alias]) if alias in aliases else None

    def download(self, version: RegisteredVersion, to: Path) -> Path:
        """Download a version below `to`, and return the folder of its export, or `to`."""
        with self._translate_errors():
            place = self._client.get_model_version_download_uri(self.name, str(version.number))
            model = Path(download_artifacts(place, dst_path=str(to), tracking_uri=self._uri.text))
        return next((path.parent for path in model.glob("artifacts/*/schema.json")), to)

    def put(self, model: NewModel, known: RegisteredVersion | None) -> RegisteredVersion:
        """Log the model on its run, and make or complete its version; what exists already stays."""
        with self._translate_errors():
            logged = self._find_or_log(model)
            if logged.status != LoggedModelStatus.READY:
                self._upload(model, logged)
            self._show_in_models_column(model, logged)
            version = self._create_version(model, logged) if known is None else known
            if model.about != version.about and (model.metrics or not version.about):
                self._log_metrics(model, logged)
                self._client.update_model_version(self.name, str(version.number), model.about)
            for key, value in model.tags.items():
                if version.tags.get(key) != value:
                    number = str(version.number)
                    self._client.set_model_version_tag(self.name, number, key, value)
            self._link_to_version(logged, version)
        return version

    def set_alias(self, alias: str, version: int) -> None:
        with self._translate_errors():
            self._client.set_registered_model_alias(self.name, alias, str(version))

    def drop_alias(self, alias: str) -> None:
        with self._translate_errors():
            self._client.delete_registered_model_alias(self.name, alias)

    def _find_or_log(self, model: NewModel) -> LoggedModel:
        """Return the model in its experiment, found by its digest or made here."""
        wanted = f"tags.`{DIGEST_TAG}` = '{model.digest}' AND source_run_id = '{model.run.run}'"
        existing = self._client.search_logged_models([model.run.experiment], wanted)
        if existing:
            return existing[0]
        return self._client.create_logged_model(
            model.run.experiment,
            model.name,
            source_run_id=model.run.run,
            tags={DIGEST_TAG: model.digest, **model.tags},
            params=dict(model.params),
        )

    def _upload(self, model: NewModel, logged: LoggedModel) -> None:
        """Upload the model's files, all of them before the model is called ready."""
        with tempfile.TemporaryDirectory() as folder:
            model_folder = Path(folder) / "model"
            write_model_folder(model_folder, model, logged.model_id)
            self._client.log_model_artifacts(logged.model_id, str(model_folder))
        self._log_metrics(model, logged)
        self._client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)

    def _log_metrics(self, model: NewModel, logged: LoggedModel) -> None:
        """Log the model's metrics, on its run, too; a repetition changes nothing."""
        for point in model.metrics:
            self._client.log_metric(
                model.run.run,
                point.name,
                point.value,
                point.time_ms,
                point.step,
                model_id=logged.model_id,
            )

    def _show_in_models_column(self, model: NewModel, logged: LoggedModel) -> None:
        """Show the model in the column *Models* of its run, once."""
        shown = self._client.get_run(model.run.run).outputs
        if shown is None or logged.model_id not in {m.model_id for m in shown.model_outputs}:
            output = LoggedModelOutput(logged.model_id, step=0)
            self._client.log_outputs(model.run.run, [output])

    def _create_version(self, model: NewModel, logged: LoggedModel) -> RegisteredVersion:
        """Create a version with all its tags at once, because it is found again by one of them."""
        created = self._client.create_model_version(
            self.name,
            logged.artifact_location,  # `models:/…` would be looked up in the process's own store
            run_id=model.run.run,
            tags={DIGEST_TAG: model.digest, **model.tags},
            description=model.about,
            model_id=logged.model_id,
        )
        return _version(created)

    def _link_to_version(self, logged: LoggedModel, version: RegisteredVersion) -> None:
        """Link the model to its version, for the column *Models*."""
        entry = {"name": self.name, "version": version.number}
        entries = parse_json(logged.tags.get(MLFLOW_MODEL_VERSIONS) or "[]")
        if entry not in entries:
            tags = {MLFLOW_MODEL_VERSIONS: json.dumps([*entries, entry])}
            self._client.set_logged_model_tags(logged.model_id, tags)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise MLflow's errors within the block as RegistryError, without credentials."""
        try:
            yield
        except (MlflowException, OSError) as error:
            where = os.environ.get(VARIABLE)
            named = str(self._uri) if not where else f"{VARIABLE}={redact_text(where)}"
            raise RegistryError(
                f"{named}: MLflow's model registry cannot be used "
                f"({explain_error(error, self._uri)}); start that server, or mend the address."
            ) from error


def _version(found: ModelVersion) -> RegisteredVersion:
    return RegisteredVersion(int(found.version), dict(found.tags), found.description or "")


SERVED = Path(__file__).with_name("served.py")
PACKAGE = "package"
"""The name of the export among the artifacts, as in `served.py`."""
REQUIREMENTS = ("mlflow", "numpy", "pandas", "onnxruntime")


def write_model_folder(folder: Path, model: NewModel, model_id: str) -> None:
    """Write `folder`, which must not exist yet, as MLflow keeps a model: an export, and its server.

    The model is made from code (no pickle), with requirements pinned to the versions with which the
    export was checked. Raise MlflowException or OSError.
    """
    import mlflow.pyfunc  # takes 2 s, which only an upload needs
    from mlflow.models import Model

    schema = parse_json((model.package / "schema.json").read_text("utf-8"))
    with mute_mlflow_info():
        mlflow.pyfunc.save_model(
            folder,
            mlflow_model=Model(run_id=model.run.run, model_uuid=model_id, model_id=model_id),
            python_model=str(SERVED),
            artifacts={PACKAGE: str(model.package)},
            signature=model_signature(schema),
            input_example=model.example,
            pip_requirements=[f"{name}=={metadata.version(name)}" for name in REQUIREMENTS],
        )


def model_signature(schema: Mapping[str, Any]) -> ModelSignature:
    """Return the columns that go in and come out, from the export's `schema.json`.

    The types of columns that go in are open: a missing cell turns a frame's integers into floats,
    and MLflow refuses both where the signature says otherwise. The export's reader knows all types.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType

    anything = AnyType()  # type: ignore[no-untyped-call]
    types = {
        str: DataType.string,
        int: DataType.long,
        float: DataType.double,
        bool: DataType.boolean,
    }
    classes = schema["classes"]
    kinds = {type(label) for label in classes} or {float}
    kind = types.get(kinds.pop(), anything) if len(kinds) == 1 else anything
    inputs = [
        ColSpec(anything, name) for name in dict.fromkeys(c["name"] for c in schema["columns"])
    ]
    outputs = [ColSpec(kind, "prediction")]
    outputs += [ColSpec(DataType.double, f"probability_{label}") for label in classes]
    return ModelSignature(Schema([*inputs]), Schema([*outputs]))
