"""Trials with folds whose study goes by a metric that is no mean over rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automl.config import DataConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.data.scoring.metrics import make_predictions
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import Family, load_families
from automl.models.mean_model import judged_outputs
from automl.models.networks.folds.fold_estimator import FoldsEstimator
from automl.models.predictor import Predictor, load
from automl.trial import Direction, FinishedOutcome, Verdict
from tests.models import networks
from tests.models.folds.conftest import PARAMS, CallByCall, plan_of, run
from tests.models.folds.test_together import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def disc5() -> Dataset:
    """240 points, five folds."""
    return load_dataset(DataConfig(folds=5, n_train=160, n_validation=80))


OF_RANKS: dict[str, tuple[Family, dict[str, Any], type[FoldsEstimator]]] = {
    "pack": (MLPFamily(), PARAMS, FoldsEstimator),
    "calls": (MLPFamily(), PARAMS, CallByCall),
    "stacked": (*FAMILIES["python"], FoldsEstimator),
    "arrays": (load_families()["trees"](), {}, FoldsEstimator),
}


@pytest.mark.parametrize("way", OF_RANKS)
def test_any_metric_is_that_of_all_rows_left_out(tmp_path: Path, way: str, disc5: Dataset) -> None:
    """An area under a curve is no mean of those of the folds."""
    family, params, kind = OF_RANKS[way]
    plan = replace(plan_of(disc5, family), metric="val_auc", direction=Direction.maximize)
    whole = run(disc5, tmp_path / "whole", params, plan=plan, kind=kind)
    assert isinstance(whole.outcome, FinishedOutcome), whole.outcome
    assert all(0 < metrics["val_auc"] <= 1 for _, metrics in whole.reports)
    path = tmp_path / "whole" / "trial-00000" / "best.pt"
    model = load(path, build=networks.normed if way == "stacked" else None)
    assert isinstance(model, Predictor)
    outputs = judged_outputs(model.trained_model, disc5)
    scored = make_predictions(disc5.task, outputs, disc5.judged.y, *model.unit).scored()
    assert whole.outcome.value == pytest.approx(scored["auc"], abs=1e-9)
    assert model.metrics == pytest.approx(
        {f"val_{n}": v for n, v in scored.items()} | {"train_loss": model.metrics["train_loss"]},
        abs=1e-6,
    ), "all of them are told"
    run(disc5, tmp_path / "parts", params, plan=plan, kind=kind, verdicts={1: Verdict.STOP})
    parts = run(disc5, tmp_path / "parts", params, plan=plan, kind=kind)
    assert parts.reports == whole.reports
    assert isinstance(parts.outcome, FinishedOutcome)
    assert parts.outcome.value == whole.outcome.value
