"""A folder with an MLflow database and a study directory, and what MLflow says of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from automl.tracking.environment import set_defaults
from tests.tracking.scenes import NAME

if TYPE_CHECKING:
    from mlflow.entities import Run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """MLflow 3.17 uses an option that SQLAlchemy 2.1 warns of: theirs to mend."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"))


@pytest.fixture(scope="session", autouse=True)
def mlflow_environment() -> Iterator[None]:
    """MLflow's variables, as every process of ours has them before it imports mlflow."""
    before = dict(os.environ)
    set_defaults(os.environ)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database as it is first made (2 s, so once for all tests)."""
    from automl.tracking.store import make_database

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    make_database(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that has been used before: MLflow's database is there."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def study(folder: Path) -> Path:
    """The directory of a study that has written nothing yet."""
    path = folder / "studies" / NAME
    path.mkdir(parents=True)
    return path


class Shown:
    """What MLflow shows of the study at a URI."""

    def __init__(self, uri: str) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(uri)

    def runs(self) -> list[Run]:
        """Every run of the study's experiment that is not deleted."""
        experiment = self.client.get_experiment_by_name(NAME)
        assert experiment is not None
        assert experiment.lifecycle_stage == "active"
        return list(self.client.search_runs([experiment.experiment_id], max_results=10_000))

    def run(self, name: str) -> Run:
        """The one run of that name."""
        (found,) = (run for run in self.runs() if run.info.run_name == name)
        return found

    def history(self, name: str, metric: str) -> list[tuple[int, int, float]]:
        """(step, milliseconds, value) of a metric, in the order of steps."""
        points = self.client.get_metric_history(self.run(name).info.run_id, metric)
        return sorted((p.step, p.timestamp, p.value) for p in points)

    def artifacts(self, name: str) -> dict[str, bytes]:
        """Name and content of the run's checkpoints."""
        run_id = self.run(name).info.run_id
        paths = [info.path for info in self.client.list_artifacts(run_id, "checkpoints")]
        return {
            Path(path).name: Path(self.client.download_artifacts(run_id, path)).read_bytes()
            for path in paths
        }


@pytest.fixture
def shown(folder: Path) -> Shown:
    """What MLflow shows from the database in the folder."""
    return Shown(f"sqlite:///{folder / 'mlflow.db'}")
