"""Data sets with folds, and trials on them: together, or call by call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import DataConfig, DataKind, Precision, TrainingConfig
from automl.data.dataset import Dataset, RowFold
from automl.data.load import load_dataset
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.trial_context import TrialContext
from automl.models.family import Family
from automl.models.networks.folds.fold_estimator import FoldsEstimator
from automl.objectives.training_plan import TrainingPlan
from automl.objectives.training_session import TrainingSession
from automl.trial import Verdict
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, by_class, shops_frame

N_EPOCHS = 5
PARAMS = {"depth": 2, "width": 12, "lr": 0.02, "batch_size": 32, "dropout": 0.1}
NORMED = {"width": 6, "lr": 0.02, "batch_size": 32}


@pytest.fixture(scope="session")
def disc5() -> Dataset:
    """240 points, five folds."""
    return load_dataset(DataConfig(folds=5, n_train=160, n_validation=80))


@pytest.fixture(scope="session")
def uneven(plane: Dataset) -> Dataset:
    """Regression in three folds that train on 150, 120 and 30 rows, judged by 50, 31 and 7."""
    sizes = [(150, 50), (120, 31), (30, 7)]
    rows = [np.random.default_rng(n).permutation(200) for n in range(3)]
    folds = tuple(
        RowFold(np.sort(some[:a]), np.sort(some[a : a + b]))
        for some, (a, b) in zip(rows, sizes, strict=True)
    )
    nothing = plane.validation.take(np.zeros(0, np.int64))
    return replace(plane, validation=nothing, folds=folds, epoch_rows=100)


@pytest.fixture(scope="session", params=[1, 3], ids=["a value", "three classes"])
def shops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Five folds, whose models see the mean target of each of 70 categories."""
    frame, path = shops_frame(400, 70), tmp_path_factory.mktemp("shops") / "t.csv"
    (frame if request.param == 1 else by_class(frame, 3)).to_csv(path, index=False)
    combine = [f"{TARGET} by shop"]
    return load_dataset(
        DataConfig(DataKind.csv, str(path), TARGET, rules=5, folds=5, combine=combine)
    )


def plan_of(
    dataset: Dataset,
    family: Family | None = None,
    precision: Precision = Precision.float64,
    **more: Any,
) -> TrainingPlan:
    training = TrainingConfig(
        epochs=N_EPOCHS, precision=precision, checkpoint_every_seconds=0, **more
    )
    return replace(make_plan(training=training, family=family), n_models=dataset.n_models)


class CallByCall(FoldsEstimator):
    """An estimator whose folds cannot train together."""

    def _open_own(self, trial: TrialContext) -> None:
        return None


def session(
    plan: TrainingPlan, dataset: Dataset, kind: type[FoldsEstimator] = FoldsEstimator
) -> TrainingSession:
    return TrainingSession(plan, kind(plan.estimator_setup(dataset)))


def run(
    dataset: Dataset,
    folder: Path,
    params: dict[str, Any],
    *,
    plan: TrainingPlan | None = None,
    kind: type[FoldsEstimator] = FoldsEstimator,
    verdicts: dict[int, Verdict] | None = None,
) -> Listener:
    listener = Listener(verdicts or {})
    spec = make_spec(folder, params)
    session(plan or plan_of(dataset), dataset, kind).run(spec, HOST, listener)
    return listener


def best(folder: Path) -> dict[str, Any]:
    return torch_checkpoint.load(folder / "trial-00000" / "best.pt")


def assert_same(found: Any, expected: Any, within: float) -> None:
    """Compare nested values, numbers with a tolerance."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value, within)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, within)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=within, atol=within)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=within, abs=within)
    else:
        assert found == expected
