"""MLflow's database comes into being once, whole, however many want it at once."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
import sqlalchemy
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

from automl.errors import ConfigError
from automl.tracking.mlflow_store import explain_error, is_older_database, open_client, repeat_lost
from automl.tracking.tracking_uri import TrackingUri
from tests.tracking.scenes import free_port

OPEN = """
import sys
from automl.tracking.mlflow_loading import load_lean
load_lean("automl.tracking.mlflow_store")
from automl.tracking.mlflow_store import open_client
from automl.tracking.tracking_uri import TrackingUri
print("here", flush=True)
sys.stdin.readline()
open_client(TrackingUri(f"sqlite:///{sys.argv[1]}", "tracking.uri")).create_experiment(sys.argv[2])
"""


def opener(path: Path, name: str) -> subprocess.Popen[bytes]:
    """A process that has imported MLflow and opens the store when it is told to."""
    command = [sys.executable, "-W", "ignore", "-c", OPEN, str(path), name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_two_first_openers_at_once_share_one_database(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mlflow.db"
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".mlflow.db.building").write_text("of a builder that was killed")
    openers = [opener(path, name) for name in ("a", "b")]
    for process in openers:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
    for process in openers:
        process.communicate(b"\n", timeout=300)
        assert process.returncode == 0
    names = {e.name for e in MlflowClient(f"sqlite:///{path}").search_experiments()}
    assert names == {"Default", "a", "b"}
    assert sorted(p.name for p in path.parent.iterdir()) == [".mlflow.db.lock", "mlflow.db"]


def test_a_broken_database_is_refused_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    connection = sqlite3.connect(path)
    connection.execute("create table experiments (id int)")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match=r"mlflow\.db: MLflow cannot use it"):
        open_client(TrackingUri(f"sqlite:///{path}", "tracking.uri"))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("hello, this is no database " * 100)
    with pytest.raises(ConfigError, match="not a database"):
        open_client(TrackingUri(f"sqlite:///{path}", "tracking.uri"))


def test_a_relative_address_names_the_store_of_the_folder_that_the_process_is_in(
    folder: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`delete` found no runs in the second folder: it looked into the store of the first."""
    uri = TrackingUri("sqlite:///mlflow.db", "tracking.uri")
    open_client(uri).create_experiment("of the first folder")
    second = folder / "second"
    second.mkdir()
    shutil.copyfile(empty_database, second / "mlflow.db")
    monkeypatch.chdir(second)
    assert open_client(uri).get_experiment_by_name("of the first folder") is None


def test_a_dead_database_server_is_refused_at_once() -> None:
    """MLflow itself would try for 100 s."""
    uri = TrackingUri(f"postgresql://ann:s3cret@127.0.0.1:{free_port()}/x", "tracking.uri")
    with pytest.raises(ConfigError, match="refused") as caught:
        open_client(uri)
    assert "s3cret" not in str(caught.value)


def test_an_error_is_explained_by_its_root_and_kept_short() -> None:
    uri = TrackingUri("http://ann:s3cret@host", "tracking.uri")
    error = RuntimeError("a page of text about s3cret " * 100)
    assert len(explain_error(error, uri)) < 500
    assert "s3cret" not in explain_error(error, uri)
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert explain_error(error, uri) == "[Errno 111] Connection refused"


def lost(cause: Exception) -> MlflowException:
    """Return what MLflow's client raises over a request, as it was caused."""
    try:
        raise MlflowException(f"API request to … failed with exception {cause}") from cause
    except MlflowException as error:
        return error


@pytest.mark.parametrize(
    ("cause", "n_calls"),
    [
        (ProtocolError("Connection aborted."), 3),
        (ReadTimeoutError(HTTPConnectionPool("host"), "/", "Read timed out."), 3),
        (NewConnectionError(HTTPConnection("host"), "refused"), 1),
        (OSError("the disk is full"), 1),
    ],
)
def test_what_the_network_lost_is_asked_for_again(cause: Exception, n_calls: int) -> None:
    """The third answer comes. Where nobody listens, or another thing is wrong, nothing is."""
    calls: list[int] = []

    def call(number: int) -> int:
        calls.append(number)
        if len(calls) < 3:
            raise lost(cause)
        return number

    if n_calls == 1:
        with pytest.raises(MlflowException):
            repeat_lost(call, 7)
    else:
        assert repeat_lost(call, 7) == 7
    assert len(calls) == n_calls


def test_a_network_that_carries_nothing_is_given_up() -> None:
    def call() -> None:
        raise lost(ProtocolError("Connection aborted."))

    with pytest.raises(MlflowException, match="aborted"):
        repeat_lost(call)


@pytest.fixture
def of_older_mlflow(tmp_path: Path) -> Path:
    """A database by an MLflow of some years ago, with an experiment in it."""
    from alembic import command
    from alembic.script import ScriptDirectory

    path = tmp_path / "mlflow.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    InitialBase.metadata.create_all(engine)
    config = utils._get_alembic_config(str(engine.url))  # type: ignore[no-untyped-call]
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revisions[len(revisions) // 2])
    engine.dispose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO experiments (name, lifecycle_stage) VALUES ('a', 'active')")
        connection.commit()
    return path


def test_a_database_of_an_older_mlflow_is_migrated_aloud_and_kept(of_older_mlflow: Path) -> None:
    """Once: a second opener has nothing to do or to say."""
    path, before = of_older_mlflow, tables(of_older_mlflow)
    assert is_older_database(path)
    said = list[str]()
    for _ in range(2):
        client = open_client(TrackingUri(f"sqlite:///{path}", "tracking.uri"), said.append)
        assert [e.name for e in client.search_experiments() if e.name == "a"] == ["a"]
    copy = path.with_name(f"mlflow.db.before-{mlflow.__version__}")
    assert said == [
        f"{path}: an older MLflow made this database; MLflow {mlflow.__version__} has migrated it, "
        f"and what it was stays in {copy.name}"
    ]
    assert tables(copy) == before
    assert tables(path) - before
    assert {file.name for file in path.parent.iterdir()} == {
        "mlflow.db",
        ".mlflow.db.lock",
        copy.name,
    }


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
