"""Small data sets made by hand, and a listener that stands in for the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.config import (
    DataConfig,
    ObjectiveConfig,
    Precision,
    Task,
    TrainingConfig,
)
from automl.data.columns import make_divided_columns
from automl.data.dataset import Dataset, DatasetPart, TableRows
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import Family
from automl.objectives.training_plan import TrainingPlan
from automl.trial import (
    Direction,
    MetricsReported,
    Params,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.models.tables import mixed
from tests.places import ON_HOST

HOST = ON_HOST


@dataclass
class Listener:
    """Takes a trial's events; answers the n-th report with a verdict where one was asked for."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Verdict for each step that gets one."""
    events: list[TrialEvent] = field(default_factory=list)

    def __call__(self, event: TrialEvent) -> Verdict:
        self.events.append(event)
        if isinstance(event, MetricsReported):
            return self.verdicts.get(event.step, Verdict.GO_ON)
        return Verdict.GO_ON

    @property
    def reports(self) -> list[tuple[int, dict[str, float]]]:
        return [(e.step, dict(e.metrics)) for e in self.events if isinstance(e, MetricsReported)]

    @property
    def outcome(self) -> TrialOutcome:
        outcomes = [event for event in self.events if isinstance(event, TrialOutcome)]
        assert outcomes == self.events[-1:], "exactly one outcome, and it comes last"
        return outcomes[0]


def make_spec(folder: Path, params: Params | None = None, number: int = 0) -> TrialSpec:
    return TrialSpec(number, params or {}, str(folder / f"trial-{number:05}"), study_seed=7)


def make_plan(
    *,
    metric: str = "val_loss",
    direction: Direction = Direction.minimize,
    training: TrainingConfig | None = None,
    objective: ObjectiveConfig | None = None,
    family: Family | None = None,
    space: Sequence[str] = (),
) -> TrainingPlan:
    return TrainingPlan(
        objective=objective or ObjectiveConfig(),
        data=DataConfig(),
        family=family or MLPFamily(),
        training=training or TrainingConfig(epochs=6, precision=Precision.float32),
        metric=metric,
        direction=direction,
        space=tuple(space),
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Give torch the one thread of a process that trains.

    With more, other work on the machine makes each step wait.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _part(n_rows: int, seed: int, target: Callable[[np.ndarray], np.ndarray]) -> DatasetPart:
    x = np.random.default_rng(seed).uniform(-1, 1, (n_rows, 2)).astype(np.float32)
    rows = TableRows(x.astype(np.float64), np.empty((n_rows, 0), np.int32))
    return DatasetPart(rows, target(x))


@pytest.fixture(scope="session")
def disc() -> Dataset:
    """300 points to train, 200 to validate; class `in` inside the circle of half the area."""

    def inside(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(x).sum(1) < 2 / np.pi, dtype=np.int64)

    return Dataset(
        name="disc",
        task=Task.classification,
        train=_part(300, 0, inside),
        validation=_part(200, 1, inside),
        classes=("out", "in"),
        columns=make_divided_columns(1.0, ["a", "b"]),
        target_mean=0.0,
        target_scale=1.0,
        digest="disc",
        notes=(),
    )


@pytest.fixture(scope="session")
def plane() -> Dataset:
    """Regression: y = 1000 + 50 a - 20 b, 200 rows to train and 100 to validate."""

    def height(x: np.ndarray) -> np.ndarray:
        return np.asarray(1000 + 50 * x[:, 0] - 20 * x[:, 1], dtype=np.float64)

    train = _part(200, 2, height)
    return Dataset(
        name="plane",
        task=Task.regression,
        train=train,
        validation=_part(100, 3, height),
        classes=(),
        columns=make_divided_columns(1.0, ["a", "b"]),
        target_mean=float(train.y.mean()),
        target_scale=float(train.y.std()),
        digest="plane",
        notes=(),
    )


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["a value", "two classes", "three classes"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return mixed(tmp_path_factory.mktemp("tables"), request.param)
