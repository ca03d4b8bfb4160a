"""The contract of families: what every one of them does, a toy that is no network among them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import automl
from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.models.families.auto.family import AutoFamily
from automl.models.families.boosting.family import (
    BoostingFamily,
    CatBoostFamily,
    LightGBMFamily,
)
from automl.models.families.foundation.family import (
    FoundationFamily,
    TabICLFamily,
    TabPFNFamily,
)
from automl.models.families.kernel.family import KernelFamily
from automl.models.families.linear.family import LinearFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.python.family import PythonFamily
from automl.models.families.tabm.family import TabMFamily
from automl.models.families.trees.family import TreesFamily
from automl.models.family import Family, family_name, load_families
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import FinishedOutcome, InterruptedOutcome, Params, RequestSource, Verdict
from tests.features import x_of
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.networks import normed
from tests.models.test_foundation import WRITERS
from tests.models.toy_family import MeanFamily

N_EPOCHS = 4
CASES: dict[str, tuple[Family, Params]] = {
    "mlp": (MLPFamily(), {"depth": 1, "width": 8, "lr": 0.01, "batch_size": 50}),
    "python": (PythonFamily(target="tests.models.networks:normed"), {"width": 8, "lr": 0.01}),
    "tabm": (TabMFamily(members=3), {"depth": 2, "width": 8, "dropout": 0.2, "batch_size": 50}),
    "linear": (LinearFamily(), {"l2": 0.5}),
    "kernel": (KernelFamily(landmarks=50), {"kind": "matern", "l2": 2.0}),
    "trees": (TreesFamily(trees_per_epoch=3), {"kind": "random_forest", "min_samples_leaf": 2}),
    "boosting": (BoostingFamily(), {"max_leaf_nodes": 8, "max_features": 0.5}),
    "lightgbm": (LightGBMFamily(), {"num_leaves": 8, "colsample_bytree": 0.5}),
    "catboost": (CatBoostFamily(), {"depth": 3}),
    "tabicl": (TabICLFamily(), {"n_estimators": 1}),
    "tabpfn": (TabPFNFamily(), {"n_estimators": 1}),
    "mean": (MeanFamily(), {"shrink": 0.1}),
    "auto": (
        AutoFamily(families=["mlp"]),
        {"family": "mlp", "mlp_depth": 1, "mlp_width": 8, "mlp_lr": 0.01, "mlp_batch_size": 50},
    ),
}


@pytest.fixture(params=list(CASES))
def name(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each family whose library is installed; the toy is registered meanwhile."""
    family = CASES[request.param][0]
    if family.extra is not None:
        pytest.importorskip(family.extra)
    if isinstance(family, FoundationFamily):
        family.weights = str(tmp_path / "weights.ckpt")
        WRITERS[request.param](Path(family.weights), 10)
    load_families()["mean"] = MeanFamily
    yield str(request.param)
    del load_families()["mean"]


def test_every_family_is_in_the_suite() -> None:
    assert set(load_families()) == set(CASES) - {"mean"}


def test_the_light_side_is_plain(name: str, disc: Dataset) -> None:
    family, params = CASES[name]
    assert family_name(family) == name
    assert pickle.loads(pickle.dumps(family)) == family
    assert json.loads(json.dumps(family.identity())) == family.identity()
    taken, required = family.param_names()
    assert taken is None or set(params) <= set(taken)
    assert set(required) <= set(params)
    for param, value in params.items():
        family.check_value(param, value)
    request = family.request(params, disc, TrainingConfig())
    assert request.source in (RequestSource.ESTIMATED, RequestSource.UNKNOWN)
    assert (request.memory_bytes is None) == (request.source is RequestSource.UNKNOWN)
    assert request.memory_bytes is None or request.memory_bytes > 0
    key = family.pack_key(params, TrainingConfig(), on_host=True)
    assert key == family.pack_key(dict(params), TrainingConfig(), on_host=True)
    assert key is None or (key.n_lanes > 1 and hash(key) is not None)


def test_it_trains_predicts_and_goes_on_as_if_never_stopped(
    name: str, disc: Dataset, tmp_path: Path
) -> None:
    family, params = CASES[name]
    plan = make_plan(family=family, training=TrainingConfig(epochs=N_EPOCHS))
    session = open_session(SessionSetup(plan, disc))
    at = min(1, family.n_reports(plan.training) - 1)
    whole, stopped, again = Listener(), Listener({at: Verdict.STOP}), Listener()
    session.run(make_spec(tmp_path / "whole", params), HOST, whole)
    session.run(make_spec(tmp_path / "parts", params), HOST, stopped)
    session.run(make_spec(tmp_path / "parts", params), HOST, again)
    assert isinstance(stopped.outcome, InterruptedOutcome)
    assert isinstance(whole.outcome, FinishedOutcome)
    assert isinstance(again.outcome, FinishedOutcome)
    assert again.outcome.value == whole.outcome.value
    assert again.reports == whole.reports, "those of before once more, as they were, and the rest"
    x = x_of(disc, disc.validation)
    of_each = []
    for folder in ("whole", "parts"):
        path = tmp_path / folder / "trial-00000" / "best.pt"
        predictor = automl.load(path, build=normed if name == "python" else None)
        assert set(predictor.predict(x)) <= set(disc.classes)
        of_each.append(predictor.predict_probabilities(x))
    assert np.allclose(of_each[0].sum(axis=1), 1)
    np.testing.assert_array_equal(of_each[0], of_each[1])
