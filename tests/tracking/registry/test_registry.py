"""Models in MLflow's registry, in a real store: whole, once, and gone on with after any kill."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from automl.commands.models.champion import ModelAlias
from automl.commands.models.new_version import put_model
from automl.data.tables.table_sources import plain_frame
from automl.errors import ConfigError
from automl.tracking.registry.model_versions import CHALLENGER, CHAMPION, NewModel, RunRef
from automl.tracking.registry.registry import ModelRegistry, RegistryError
from automl.tracking.tracking_uri import TrackingUri
from automl.trial import LoggedPoint

SCHEMA = {"columns": [{"name": "a"}, {"name": "k", "categories": ["p"]}], "classes": ["u", 1]}
CHANGES = (
    "create_registered_model",
    "create_logged_model",
    "log_model_artifacts",
    "log_metric",
    "finalize_logged_model",
    "log_outputs",
    "create_model_version",
    "set_logged_model_tags",
    "set_registered_model_alias",
)
"""What changes the store on the way, in order."""


class Killed(BaseException):
    """Raised in the place of a kill -9."""


class Mortal:
    """A client that is killed at a call of one name, before or after it has taken effect."""

    def __init__(self, client: MlflowClient, at: str, *, after: bool) -> None:
        self._client, self._at, self._after = client, at, after

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._client, name)
        if name != self._at:
            return own

        def killed(*args: Any, **named: Any) -> None:
            if self._after:
                own(*args, **named)
            raise Killed

        return killed


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> TrackingUri:
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return TrackingUri(f"sqlite:///{tmp_path / 'mlflow.db'}", "tracking.uri")


@pytest.fixture
def model(uri: TrackingUri, tmp_path: Path) -> NewModel:
    client = MlflowClient(uri.text)
    experiment = client.create_experiment("s", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment)
    client.set_terminated(run.info.run_id, "FINISHED", 7)
    package = tmp_path / "trial-00001-onnx"
    package.mkdir()
    (package / "schema.json").write_text(json.dumps(SCHEMA))
    (package / "reader.py").write_text("")
    return NewModel(
        package=package,
        digest="ab",
        name="trial-00001",
        run=RunRef(experiment, run.info.run_id),
        example=plain_frame([{"a": 1.0, "k": "p"}, {"a": None, "k": None}], ["a", "k"]),
        tags={"automl.study": "ours", "automl.rows.12": "3 rows"},
        about="loss 0.5",
        metrics=(LoggedPoint("test_loss", 0.5, 0, 7),),
    )


def register(registry: ModelRegistry, model: NewModel, alias: str = CHAMPION) -> int:
    """As the command does it."""
    registry.claim("ours", shared=False)
    known = next((v for v in registry.versions() if v.digest == model.digest), None)
    return put_model(registry, model, known, ModelAlias(alias, "")).number


def test_it_knows_the_runs_that_are_there(uri: TrackingUri, model: NewModel) -> None:
    client = MlflowClient(uri.text)
    registry, run = ModelRegistry(client, uri, "s"), model.run
    assert registry.has_run(run)
    assert not registry.has_run(replace(run, experiment="0")), "another's"
    assert not registry.has_run(replace(run, run="0" * 32))
    client.delete_run(run.run)
    assert not registry.has_run(run), "thrown away"


def check_whole(client: MlflowClient, model: NewModel) -> None:
    """One model, shown once on a run that has ended; one version of it, the champion."""
    (logged,) = client.search_logged_models([model.run.experiment])
    assert str(logged.status) == "READY"
    assert json.loads(logged.tags["mlflow.modelVersions"]) == [{"name": "s", "version": 1}]
    files = {path.name for path in Path(logged.artifact_location).rglob("*")}
    assert files >= {"MLmodel", "served.py", "schema.json", "reader.py", "requirements.txt"}
    run = client.get_run(model.run.run)
    assert run.outputs is not None
    assert [shown.model_id for shown in run.outputs.model_outputs] == [logged.model_id]
    assert (run.info.status, run.info.end_time) == ("FINISHED", 7)
    (version,) = client.search_model_versions("name='s'")
    assert dict(version.tags) == {"automl.digest": "ab", **model.tags}
    assert version.run_id == model.run.run
    assert version.description == "loss 0.5"
    assert [(m.key, m.value) for m in logged.metrics or []] == [("test_loss", 0.5)]
    assert len(client.get_metric_history(model.run.run, "test_loss")) == 1
    assert client.get_registered_model("s").aliases == {"champion": version.version}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", CHANGES)
def test_who_was_killed_goes_on(at: str, after: bool, uri: TrackingUri, model: NewModel) -> None:
    client = MlflowClient(uri.text)
    mortal: Any = Mortal(client, at, after=after)
    with pytest.raises(Killed):
        register(ModelRegistry(mortal, uri, "s"), model)
    assert register(ModelRegistry(client, uri, "s"), model) == 1
    check_whole(client, model)


def test_the_same_again_changes_nothing(uri: TrackingUri, model: NewModel) -> None:
    client = MlflowClient(uri.text)
    register(ModelRegistry(client, uri, "s"), model)
    watched: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            watched.append(name)
            return getattr(client, name)

    asked: Any = Watched()
    assert register(ModelRegistry(asked, uri, "s"), model) == 1
    assert set(watched) & set(CHANGES) == {"create_registered_model"}, "it is refused, being there"
    check_whole(client, model)


def test_the_signature_names_columns_and_answers(uri: TrackingUri, model: NewModel) -> None:
    client = MlflowClient(uri.text)
    register(ModelRegistry(client, uri, "s"), model)
    (logged,) = client.search_logged_models([model.run.experiment])
    text = (Path(logged.artifact_location) / "MLmodel").read_text()
    assert '{"type": "any", "name": "a", "required": true}' in " ".join(text.split())
    assert '"name": "probability_u"' in " ".join(text.split())
    assert "python_model.pkl" not in text
    pinned = (Path(logged.artifact_location) / "requirements.txt").read_text().split()
    assert [line.partition("==")[0] for line in pinned] == [
        "mlflow",
        "numpy",
        "pandas",
        "onnxruntime",
    ]


def test_what_is_new_about_a_version_is_recorded_with_it(uri: TrackingUri, model: NewModel) -> None:
    registry = ModelRegistry(MlflowClient(uri.text), uri, "s")
    register(registry, model)
    register(registry, replace(model, tags={"automl.rows.34": "5 rows"}))
    (version,) = registry.versions()
    assert version.has_not_seen("12")
    assert version.has_not_seen("34")
    assert not version.has_not_seen("56")


def test_a_challenger_that_became_the_champion_is_no_challenger(
    uri: TrackingUri, model: NewModel
) -> None:
    registry = ModelRegistry(MlflowClient(uri.text), uri, "s")
    register(registry, model, CHALLENGER)
    assert (registry.alias(CHAMPION), registry.alias(CHALLENGER)) == (None, 1)
    register(registry, model, CHAMPION)
    assert (registry.alias(CHAMPION), registry.alias(CHALLENGER)) == (1, None)


@pytest.mark.parametrize(
    ("tags", "shared", "said"),
    [
        ({}, False, "another project has a registered model of this name"),
        ({}, True, "another project has a registered model of this name"),
        ({"automl.study": "theirs"}, False, "automl (theirs), which shares it with none"),
        ({"automl.study": "theirs"}, True, "automl (theirs), which shares it with none"),
        (
            {"automl.study": "theirs", "automl.shared": "true"},
            False,
            "or give this one, as=s, to have its champion challenged",
        ),
    ],
)
def test_a_name_of_others_is_refused(
    tags: dict[str, str], shared: bool, said: str, uri: TrackingUri
) -> None:
    client = MlflowClient(uri.text)
    client.create_registered_model("s", tags=tags)
    with pytest.raises(ConfigError) as refused:
        ModelRegistry(client, uri, "s").claim("ours", shared=shared)
    assert said in str(refused.value)
    ModelRegistry(client, uri, "another").claim("ours", shared=shared)


@pytest.mark.parametrize("later", [False, True])
def test_studies_share_a_name_that_each_of_them_gives(later: bool, uri: TrackingUri) -> None:
    registry = ModelRegistry(MlflowClient(uri.text), uri, "s")
    registry.claim("theirs", shared=not later)
    if later:
        registry.claim("theirs", shared=True)
    registry.claim("theirs", shared=False)  # once it is said
    registry.claim("ours", shared=True)
    with pytest.raises(ConfigError):
        registry.claim("ours", shared=False)


def test_what_is_said_of_a_version_follows_what_is_known(uri: TrackingUri, model: NewModel) -> None:
    client = MlflowClient(uri.text)
    registry = ModelRegistry(client, uri, "s")
    register(registry, model)
    register(registry, replace(model, about="nobody knows", metrics=()))
    (version,) = registry.versions()
    assert version.about == "loss 0.5"
    later = (LoggedPoint("test_loss", 0.4, 0, 8),)
    register(registry, replace(model, about="loss 0.4", metrics=later))
    (version,) = registry.versions()
    assert version.about == "loss 0.4"
    (logged,) = client.search_logged_models([model.run.experiment])
    assert {metric.value for metric in logged.metrics or []} == {0.5, 0.4}


def test_an_error_of_mlflows_has_no_credentials(uri: TrackingUri) -> None:
    class Down:
        def search_model_versions(self, *_: object, **__: object) -> None:
            raise MlflowException("API request to http://me:secret@host failed")

    down: Any = Down()
    with pytest.raises(RegistryError) as refused:
        ModelRegistry(down, replace(uri, text="http://me:secret@host"), "s").versions()
    assert "secret" not in str(refused.value)
    assert "MLflow's model registry cannot be used" in str(refused.value)


def test_an_export_comes_back_and_a_foreign_model_has_none(
    uri: TrackingUri, model: NewModel, tmp_path: Path
) -> None:
    registry = ModelRegistry(MlflowClient(uri.text), uri, "s")
    register(registry, model)
    (version,) = registry.versions()
    (tmp_path / "to").mkdir()
    folder = registry.download(version, tmp_path / "to")
    assert json.loads((folder / "schema.json").read_text()) == SCHEMA
    (there,) = MlflowClient(uri.text).search_logged_models([model.run.experiment])
    shutil.rmtree(Path(there.artifact_location) / "artifacts")
    (tmp_path / "again").mkdir()
    assert not (registry.download(version, tmp_path / "again") / "schema.json").exists()
