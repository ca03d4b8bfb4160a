"""A folder with an MLflow database and a study directory, and what MLflow says of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tracking.scenes import NAME

if TYPE_CHECKING:
    from mlflow.entities import Run
from tests.mlflow_store import folder, ignore_mlflows_warning, mlflow_environment

__all__ = ["folder", "mlflow_environment"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


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
