"""Folds as lanes of a pack on a GPU, against the same folds call by call there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import DataConfig, Precision
from automl.data.load import load_dataset
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.networks.folds.fold_estimator import FoldsEstimator
from automl.trial import FinishedOutcome, Placement
from tests.models.conftest import Listener, make_spec
from tests.models.folds.conftest import PARAMS, CallByCall, assert_same, plan_of, session

pytestmark = pytest.mark.gpu


def test_folds_of_a_pack_are_the_folds_trained_alone(tmp_path: Path, gpu: Placement) -> None:
    dataset = load_dataset(DataConfig(folds=5, n_train=160, n_validation=80))
    plan = plan_of(dataset, precision=Precision.float64)
    params = {**PARAMS, "dropout": 0.1}
    found = {}
    for name, kind in (("pack", FoldsEstimator), ("calls", CallByCall)):
        listener = Listener()
        session(plan, dataset, kind).run(make_spec(tmp_path / name, params), gpu, listener)
        assert isinstance(listener.outcome, FinishedOutcome)
        best = torch_checkpoint.load(tmp_path / name / "trial-00000" / "best.pt")
        found[name] = (listener.reports, replace(listener.outcome, time=0.0).value, best)
    assert_same(found["pack"], found["calls"], 1e-6)
