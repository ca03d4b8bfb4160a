"""Grows gradient boosted trees with CatBoost, as `BoostingModel`: no model needs CatBoost again.

Each round is a fit of its own, to what the trees before it say of the training rows, so that a
round can be reported before the next begins. Categories are columns of codes, or of 0 and 1:
CatBoost's own statistics of categories are no trees.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Dataset, Places
from automl.data.scoring.metrics import Floats
from automl.models.families.boosting.family import CatBoostParams
from automl.models.families.boosting.heavy import (
    VIEWS,
    BoostingHeavySide,
    BoostingReporter,
)
from automl.models.families.table_estimator import OnRound, TrialFit, row_weights
from automl.models.families.tree_arrays import (
    LARGEST_THRESHOLD,
    TreeArrays,
    TreeNodes,
    tree_from_nodes,
)

_OBJECTIVES = {
    "squared_error": "RMSE",
    "absolute_error": "MAE",
    "quantile": "Quantile:alpha={}",
    "poisson": "Poisson",
}
_MISSING_RIGHT = "AsTrue"
"""CatBoost's word for a column whose missing cells count as larger than all numbers."""


class CatBoostHeavySide(BoostingHeavySide):
    """The `family.HeavySide` of trees that CatBoost grows."""

    def grow(self, trial_fit: TrialFit, on_round: OnRound, present: Places) -> None:
        x = trial_fit.data.view(VIEWS[trial_fit.params.encoding])[0]
        base = first_scores(trial_fit)
        reporter = BoostingReporter(trial_fit, on_round, base, present)
        varies = any(len(np.unique(column)) > 1 for column in x.T)  # else CatBoost refuses them
        rounds = grow_rounds(trial_fit, x, base) if varies else iter(())
        for number in range(trial_fit.n_rounds):
            reporter.report(number, next(rounds, []))


def grow_rounds(
    trial_fit: TrialFit, x: npt.NDArray[np.float32], base: Floats
) -> Iterator[list[TreeArrays]]:
    """Yield the trees of one round after another."""
    import catboost

    y, weight = trial_fit.targets, None
    if trial_fit.data.task is Task.classification:
        y, weight = np.unique(y, return_inverse=True)[1], row_weights(trial_fit)
    rows = catboost.Pool(x, y, weight=weight)
    rows.quantize()
    sums = np.tile(base, (len(x), 1))
    for number in range(trial_fit.n_rounds):
        rows.set_baseline(sums)
        model = catboost.CatBoost(catboost_params(trial_fit, number, len(base))).fit(rows)
        yield trees_from_model(model)
        sums = sums + model.predict(x).reshape(len(x), -1)


def first_scores(trial_fit: TrialFit) -> Floats:
    """Return the constants (K,) that the first round corrects: the best of all constants."""
    data, y = trial_fit.data, trial_fit.targets
    if data.task is Task.classification:
        shares = np.unique(y, return_counts=True)[1] / len(y)
        if trial_fit.class_weight is not None:
            shares = np.full(len(shares), 1 / len(shares))
        logs: Floats = np.log(shares)
        return logs[1:] - logs[:1] if len(logs) == 2 else logs
    return np.array([_best_constant(data, y)])


def _best_constant(data: Dataset, y: Floats) -> float:
    if data.loss.name == "absolute_error":
        return float(np.median(y))
    if data.loss.name == "quantile":
        return float(np.quantile(y, data.loss.quantile))
    mean = float(y.mean())
    return float(np.log(max(mean, 1e-9))) if data.loss.name == "poisson" else mean


def catboost_params(trial_fit: TrialFit, number: int, n_outputs: int) -> Mapping[str, Any]:
    """Return CatBoost's params of a round."""
    params, data = trial_fit.params, trial_fit.data
    assert isinstance(params, CatBoostParams), "params of this family"
    loss = _OBJECTIVES[data.loss.name].format(data.loss.quantile)
    if data.task is Task.classification:
        loss = "MultiClass" if n_outputs > 1 else "Logloss"
    seed = np.random.SeedSequence([trial_fit.seed, number]).generate_state(1)[0]
    return {
        "loss_function": loss,
        "iterations": trial_fit.family.iterations_per_epoch,
        "learning_rate": float(params.learning_rate),
        "depth": params.depth,
        "l2_leaf_reg": float(params.l2_leaf_reg),
        "random_strength": float(params.random_strength),
        "bootstrap_type": "Bayesian",
        "bagging_temperature": float(params.bagging_temperature),
        "random_seed": int(seed % 2**31),
        "thread_count": trial_fit.n_threads,
        "allow_writing_files": False,
        "logging_level": "Silent",
    }


def trees_from_model(model: Any) -> list[TreeArrays]:
    """Return the trees of a fitted model of CatBoost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        plain = json.loads(path.read_text())
    columns = plain["features_info"]["float_features"]
    place = {column["feature_index"]: column["flat_feature_index"] for column in columns}
    missing_right = {
        column["feature_index"]: column["nan_value_treatment"] == _MISSING_RIGHT
        for column in columns
    }
    return [_tree(tree, place, missing_right) for tree in plain["oblivious_trees"]]


def _tree(
    plain: Mapping[str, Any], place: Mapping[int, int], missing_right: Mapping[int, bool]
) -> TreeArrays:
    """Return a tree whose nodes of a level all ask the same question.

    Nodes are numbered level by level. In CatBoost, the answers are the bits of a leaf's number,
    the first answer the lowest bit.
    """
    splits = plain["splits"] or []
    depth = len(splits)
    n_inner = 2**depth - 1
    number = np.arange(2 * n_inner + 1)
    level = np.floor(np.log2(number + 1)).astype(np.int64)
    columns = np.array([place[split["float_feature_index"]] for split in splits] + [0])
    borders = np.array([split["border"] for split in splits] + [0.0])
    rights = np.array([missing_right[split["float_feature_index"]] for split in splits] + [False])
    path = np.arange(2**depth)
    leaf = sum((path >> depth - 1 - at & 1) << at for at in range(depth)) + 0 * path
    values = np.array(plain["leaf_values"], dtype=np.float64).reshape(2**depth, -1)[leaf]
    return tree_from_nodes(
        TreeNodes(
            left=2 * number + 1,
            right=2 * number + 2,
            is_leaf=number >= n_inner,
            column=columns[level],
            threshold=borders[level].clip(-LARGEST_THRESHOLD, LARGEST_THRESHOLD),
            missing_right=rights[level],
            value=np.concatenate([np.zeros((n_inner, values.shape[1])), values]),
        )
    )


SIDE = CatBoostHeavySide()
