"""Which store is used, and what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config import TrackingConfig
from automl.errors import ConfigError
from automl.tracking.tracking_uri import TrackingUri, resolve_uri


def test_the_config_goes_before_the_variable_before_the_default() -> None:
    variable = {"MLFLOW_TRACKING_URI": "http://variable:5000"}
    config = TrackingConfig(uri="http://config:5000")
    assert str(resolve_uri(config, variable)) == "tracking.uri=http://config:5000"
    assert str(resolve_uri(TrackingConfig(), variable)) == (
        "MLFLOW_TRACKING_URI=http://variable:5000"
    )
    assert str(resolve_uri(TrackingConfig(), {})) == "tracking.uri=sqlite:///mlflow.db"


def test_a_sweep_inside_of_a_trial_has_a_store_of_its_own() -> None:
    variable = {"MLFLOW_TRACKING_URI": "automl://trial"}
    assert str(resolve_uri(TrackingConfig(), variable)) == "tracking.uri=sqlite:///mlflow.db"


def test_the_default_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(TrackingConfig(), {}).sqlite_path == tmp_path / "mlflow.db"


@pytest.mark.parametrize(
    ("uri", "absolute"),
    [
        ("sqlite:///mlflow.db", "sqlite:////here/mlflow.db"),
        ("sqlite:///a/b.db?timeout=5", "sqlite:////here/a/b.db?timeout=5"),
        ("sqlite:////tmp/mlflow.db", "sqlite:////tmp/mlflow.db"),
        ("http://host:5000", "http://host:5000"),
    ],
)
def test_an_address_holds_wherever_the_process_goes(
    uri: str, absolute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = TrackingUri(uri, "tracking.uri").absolute
    assert found.text == absolute.replace("/here", str(tmp_path))
    assert found.absolute == found


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("automl://trial", "where a trial's objective logs to"),
        ("htp://host:5000", "no store of the kind 'htp'"),
        ("C:\\runs", "no store of the kind 'c'"),
        ("./mlruns", "plain folders"),
        ("file:///tmp/mlruns", "plain folders"),
        ("http://", "http://HOST:PORT"),
        ("http://host:port", "http://HOST:PORT"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite://", "name a file"),
        ("sqlite:////etc/passwd/x.db", "/etc/passwd cannot be written"),
        ("sqlite:////tmp", "is a folder"),
    ],
)
def test_what_cannot_work_is_refused_with_the_value(uri: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_uri(TrackingConfig(uri=uri), {})
    assert says in str(caught.value)
    assert f"tracking.uri={uri}" in str(caught.value)


def test_a_plain_folder_is_left_to_mlflow_where_the_user_allows_it() -> None:
    environ = {"MLFLOW_ALLOW_FILE_STORE": "true"}
    assert resolve_uri(TrackingConfig(uri="./mlruns"), environ).text == "./mlruns"


def test_credentials_are_masked_in_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    uri = resolve_uri(TrackingConfig(uri="postgresql://ann:s3%40cret@db/x"))
    assert str(uri) == "tracking.uri=postgresql://ann:***@db/x"
    assert set(uri.secrets) == {"s3%40cret", "s3@cret", "t0ken"}
    with pytest.raises(ConfigError) as caught:
        resolve_uri(TrackingConfig(uri="postgre://ann:s3cret@db/x"))
    assert "s3cret" not in str(caught.value)
