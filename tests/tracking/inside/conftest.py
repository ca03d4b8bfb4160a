"""A training session in this process, whose objective logs through MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from automl.in_trial.trial_context import TrialContext
from automl.objectives.training_session import TrainingSession
from automl.tracking.inside.process import InsideConfig, open_inside
from automl.trial import (
    FinishedOutcome,
    MetricsReported,
    ParamValue,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    TrialTagged,
    ValuesLogged,
    Verdict,
)
from automl.trial.session_protocols import LoggingRedirect
from tests.mlflow_store import folder, ignore_mlflows_warning, mlflow_environment
from tests.models.conftest import make_plan
from tests.places import ON_HOST
from tests.plugins import write_entry_points

__all__ = ["folder", "mlflow_environment"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


@pytest.fixture(scope="package", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, mlflow_environment: None) -> Iterator[None]:
    """MLflow knows the store, whatever the checkout was installed from."""
    there = str(write_entry_points(tmp_path_factory.mktemp("installed")))
    sys.path.insert(0, there)
    from mlflow.tracking._tracking_service import utils

    utils._tracking_store_registry.register_entrypoints()  # type: ignore[no-untyped-call]
    yield
    sys.path.remove(there)


@dataclass
class Trial:
    """One execution of a trial, and what its session told."""

    events: list[TrialEvent] = field(default_factory=list)
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    """By step of a report."""

    def __call__(self, event: TrialEvent) -> Verdict:
        self.events.append(event)
        step = event.step if isinstance(event, MetricsReported) else -1
        return self.verdicts.get(step, Verdict.GO_ON)

    @property
    def reports(self) -> list[tuple[int, dict[str, float]]]:
        return [(e.step, dict(e.metrics)) for e in self.events if isinstance(e, MetricsReported)]

    @property
    def points(self) -> list[tuple[str, int, float]]:
        found = [p for e in self.events if isinstance(e, ValuesLogged) for p in e.points]
        return [(point.name, point.step, point.value) for point in found]

    @property
    def params(self) -> dict[str, str]:
        return {
            k: v for e in self.events if isinstance(e, ValuesLogged) for k, v in e.params.items()
        }

    @property
    def tags(self) -> dict[str, str]:
        return {e.name: e.text for e in self.events if isinstance(e, TrialTagged)}

    @property
    def outcome(self) -> TrialOutcome:
        assert isinstance(self.events[-1], TrialOutcome)
        return self.events[-1]

    @property
    def value(self) -> float:
        assert isinstance(self.outcome, FinishedOutcome), self.outcome
        return self.outcome.value


@dataclass(frozen=True)
class Trainer:
    """Carries out an objective in a folder."""

    folder: Path

    def run(
        self,
        objective: Callable[[TrialContext], Any],
        params: Mapping[str, ParamValue] | None = None,
        *,
        number: int = 0,
        trial: Trial | None = None,
        inside: LoggingRedirect | None = None,
    ) -> Trial:
        trial = trial or Trial()
        inside = inside or open_inside(InsideConfig())
        session = TrainingSession(make_plan(), objective, inside)
        folder = self.folder / f"trial-{number:05}"
        session.run(TrialSpec(number, params or {}, str(folder), 0), ON_HOST, trial)
        return trial


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """Nothing of MLflow's is left as a trial has set it."""
    import mlflow

    before = mlflows_variables(), mlflow.get_tracking_uri()
    yield Trainer(tmp_path)
    assert (mlflows_variables(), mlflow.get_tracking_uri()) == before
    assert mlflow.active_run() is None


def mlflows_variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("MLFLOW")}
