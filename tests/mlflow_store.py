"""An MLflow store for tests: its environment, its database made once, a folder that holds it.

A conftest imports the fixtures it wants; `mlflow_environment` is in force where it is imported.
Those of the session are in the first conftest, so that all parts share one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.tracking.mlflow_loading import set_mlflow_defaults
from tests.warm import warm_programs


def ignore_mlflows_warning(items: list[pytest.Item], here: Path) -> None:
    """MLflow 3.17 uses an option that SQLAlchemy 2.1 warns of, and warns of its own annotations as
    it is imported: theirs to mend."""
    for item in items:
        if str(item.path).startswith(f"{here}{os.sep}"):
            item.add_marker(pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*Any type hint is inferred"))


@pytest.fixture(scope="package", autouse=True)
def mlflow_environment(programs_are_warm: None) -> Iterator[None]:
    """MLflow's variables, as every process of ours has them before it imports mlflow."""
    before = dict(os.environ)
    set_mlflow_defaults(os.environ)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database as it is first made (2 s, so once for all processes of tests)."""
    from automl.tracking.mlflow_store import make_mlflow_database

    folder = tmp_path_factory.getbasetemp()
    one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    path = (folder.parent if one_of_several else folder) / "store" / "mlflow.db"
    make_mlflow_database(path)
    return path


@pytest.fixture(scope="session")
def programs_are_warm(empty_database: Path) -> Iterator[None]:
    """Delivering processes and some programs begin with their libraries loaded; see
    `warm_start.py`."""
    with warm_programs(empty_database):
        yield


@pytest.fixture
def folder(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that has been used before: MLflow's database is there."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path
