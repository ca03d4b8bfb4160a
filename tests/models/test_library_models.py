"""Models of tables beside those of their libraries: what they predict, and the default params."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits

from automl.config import Task
from automl.data.dataset import Dataset
from automl.data.features import one_hot_features
from automl.in_trial.seeds import trial_seed
from automl.models.families.boosting import catboost_heavy, lightgbm_heavy
from automl.models.families.boosting import heavy as boosting
from automl.models.families.boosting.family import BoostingFamily
from automl.models.families.table_estimator import TrialFit, row_weights
from automl.models.families.tree_arrays import tree_view
from automl.models.families.trees import heavy as trees
from automl.models.families.trees.family import TreesFamily
from automl.models.family import OWN_EPOCHS
from automl.models.predictor import Predictor
from automl.trial import Params
from tests.models.tables import TARGET, mixed_frame
from tests.models.test_table_families import FAMILIES, trained

TOLERANCE = 1e-6


def fitting(name: str, data: Dataset, params: Params | None = None) -> TrialFit:
    """Return the fit of the trial of `trained`."""
    family = FAMILIES[name]
    return TrialFit(family, data, family.params(params or {}), trial_seed(7, 0), 1, 1)


def said(model: Any, rows: npt.NDArray[Any], data: Dataset) -> npt.NDArray[Any]:
    """Probabilities, or values in the target's unit."""
    if data.task is Task.classification:
        return np.asarray(model.predict_proba(rows))
    return np.asarray(model.predict(rows) * data.target_scale + data.target_mean)


def of_predictor(predictor: Predictor, frame: pd.DataFrame) -> npt.NDArray[Any]:
    classes = predictor.task is Task.classification
    return predictor.predict_probabilities(frame) if classes else predictor.predict(frame)


@pytest.mark.parametrize("kind", ["extra_trees", "random_forest"])
def test_a_forest_says_what_the_librarys_says(table: Dataset, kind: str, tmp_path: Path) -> None:
    params: Params = {"kind": kind, "min_samples_leaf": 1, "max_features": 1.0}
    predictor, _ = trained(tmp_path, "trees", table, params)
    asked = fitting("trees", table, params)
    forest = trees.unfitted_forest(asked, 0).fit(table.view(tree_view)[0], asked.targets)
    frame = mixed_frame(len(table.classes) or 1, seed=1)
    rows = tree_view(table.columns, predictor.read(frame))
    check_same(of_predictor(predictor, frame), said(forest, rows, table), table)


@pytest.mark.parametrize("encoding", ["plain", "one_hot"])
def test_boosting_says_what_the_librarys_says(
    table: Dataset, encoding: str, tmp_path: Path
) -> None:
    params: Params = {"encoding": encoding}
    predictor, _ = trained(tmp_path, "boosting", table, params)
    view, asked = boosting.VIEWS[encoding], fitting("boosting", table, params)
    boosted = boosting.unfitted_boosting(asked).fit(table.view(view)[0], asked.targets)
    frame = mixed_frame(len(table.classes) or 1, seed=1)
    rows = view(table.columns, predictor.read(frame))
    check_same(of_predictor(predictor, frame), said(boosted, rows, table), table)


@pytest.mark.parametrize("encoding", ["plain", "one_hot"])
@pytest.mark.parametrize("own", [{}, {"extra_trees": True, "subsample": 0.7}], ids=str)
def test_lightgbm_says_what_the_librarys_says(
    table: Dataset, encoding: str, own: Params, tmp_path: Path
) -> None:
    params: Params = {"encoding": encoding, "class_weight": "balanced", **own}
    predictor, _ = trained(tmp_path, "lightgbm", table, params)
    booster = lightgbm_heavy.unfitted_booster(fitting("lightgbm", table, params))
    for _ in range(5):
        booster.update()
    check_raw_scores(predictor, table, encoding, lambda x: booster.predict(x))


@pytest.mark.parametrize("encoding", ["plain", "one_hot"])
def test_catboost_says_what_the_librarys_says(
    table: Dataset, encoding: str, tmp_path: Path
) -> None:
    catboost = pytest.importorskip("catboost", reason="catboost is an extra")
    params: Params = {"encoding": encoding, "class_weight": "balanced"}
    predictor, _ = trained(tmp_path, "catboost", table, params)
    asked = fitting("catboost", table, params)
    x, y = table.view(boosting.VIEWS[encoding])[0], asked.targets
    first = catboost_heavy.first_scores(asked)
    rows = catboost.Pool(x, y, weight=row_weights(asked), baseline=np.tile(first, (len(x), 1)))
    model = catboost.CatBoost(catboost_heavy.catboost_params(asked, 0, len(first))).fit(rows)

    def answers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        raw = model.predict(x).reshape(len(x), -1) + first
        return forward(raw) if table.task is Task.classification else raw[:, 0]

    check_raw_scores(predictor, table, encoding, answers)


def forward(raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Probabilities of classes by raw scores; of two classes, only the second has one."""
    raw = np.column_stack([np.zeros(len(raw)), raw]) if raw.shape[1] == 1 else raw
    shares = np.exp(raw - raw.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def check_raw_scores(
    predictor: Predictor,
    table: Dataset,
    encoding: str,
    answers: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
) -> None:
    """Check new rows, also with missing cells in columns that had none in training."""
    frame = mixed_frame(len(table.classes) or 1, seed=1)
    frame.loc[:40, ["a", "b", "kind"]] = None
    theirs = answers(boosting.VIEWS[encoding](table.columns, predictor.read(frame)))
    if table.task is Task.regression:
        theirs = theirs * table.target_scale + table.target_mean
    elif theirs.ndim == 1:
        theirs = np.column_stack([1 - theirs, theirs])
    check_same(of_predictor(predictor, frame), theirs, table)


def test_a_linear_model_says_what_the_librarys_says(table: Dataset, tmp_path: Path) -> None:
    predictor, _ = trained(tmp_path, "linear", table, {"l2": 2.0})
    x, y = table.view(one_hot_features)[0], fitting("linear", table).targets
    of_classes = table.task is Task.classification
    model = (LogisticRegression(C=0.5, max_iter=1000) if of_classes else Ridge(alpha=2.0)).fit(x, y)
    frame = mixed_frame(len(table.classes) or 1, seed=1)
    rows = one_hot_features(table.columns, predictor.read(frame)).astype(np.float64)
    check_same(of_predictor(predictor, frame), said(model, rows, table), table)


N_TREES = 20
"""Trees of both sides, in place of 100."""
FEW_TREES: Params = {"n_estimators": N_TREES}
LIBRARY_DEFAULTS: dict[str, tuple[str, Any, Any, Params]] = {
    "extra trees": (*("trees", ExtraTreesClassifier, ExtraTreesRegressor), FEW_TREES),
    "extra trees of all columns": (
        *("trees", ExtraTreesClassifier, ExtraTreesRegressor),
        {"max_features": None, **FEW_TREES},
    ),
    "random forest": (*("trees", RandomForestClassifier, RandomForestRegressor), FEW_TREES),
    "boosting": (
        *("boosting", HistGradientBoostingClassifier, HistGradientBoostingRegressor),
        {"early_stopping": False, "max_iter": N_TREES},
    ),
    "linear": ("linear", LogisticRegression, Ridge, {}),
}
"""The family, the library's classes, and the arguments that are not their defaults."""


@pytest.mark.parametrize("default", list(LIBRARY_DEFAULTS))
def test_some_point_of_the_portfolio_is_the_librarys_default(
    default: str, table: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, classifier, regressor, own = LIBRARY_DEFAULTS[default]
    assert TreesFamily().trees_per_epoch * OWN_EPOCHS == ExtraTreesClassifier().n_estimators
    monkeypatch.setitem(FAMILIES, "trees", TreesFamily(trees_per_epoch=N_TREES))
    monkeypatch.setitem(FAMILIES, "boosting", BoostingFamily(iterations_per_epoch=N_TREES))
    asked = fitting(name, table)
    view = {"linear": one_hot_features}.get(name, tree_view)
    library = classifier if table.task is Task.classification else regressor
    if name == "trees":
        # The seed of a forest's first round, so that both are the same to the last tree.
        own = {**own, "random_state": trees.unfitted_forest(asked, 0).random_state}
    with threadpool_limits(1):
        fitted = library(**own).fit(table.view(view)[0], asked.targets)
    frame, points = mixed_frame(len(table.classes) or 1, seed=1), FAMILIES[name].portfolio(table)
    ours, theirs = [], None
    for number, params in enumerate(points[: FAMILIES[name].n_default_points]):
        predictor, _ = trained(tmp_path / str(number), name, table, params)
        ours.append(of_predictor(predictor, frame))
        theirs = said(fitted, view(table.columns, predictor.read(frame)), table)
    assert theirs is not None
    if name == "boosting":  # a weight of 0.001 in place of 0 breaks ties between splits elsewhere
        gains = [row_losses(theirs, frame, table) - row_losses(one, frame, table) for one in ours]
        assert max(gain.mean() + 2 * gain.std() / len(gain) ** 0.5 for gain in gains) > -1e-4
    else:
        apart = [np.abs(one - theirs).max() / table.target_scale for one in ours]
        assert min(apart) < (TOLERANCE if name == "trees" else 1e-3)


def row_losses(said: Any, frame: pd.DataFrame, data: Dataset) -> npt.NDArray[Any]:
    """Return log-losses, or squared errors in units of the target's deviation."""
    if data.task is Task.regression:
        return np.asarray(np.square((said - frame[TARGET]) / data.target_scale))
    places = [data.classes.index(label) for label in frame[TARGET]]
    return np.asarray(-np.log(said[np.arange(len(said)), places]))


def check_same(ours: npt.NDArray[Any], theirs: npt.NDArray[Any], data: Dataset) -> None:
    """Check equality to 1e-6 of a probability, or of the target's deviation."""
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() / data.target_scale < TOLERANCE
