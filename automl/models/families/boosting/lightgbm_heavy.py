"""Grows gradient boosted trees with LightGBM, as `BoostingModel`: no model needs LightGBM again.

A category is a column of codes, or of 0 and 1, never a category of LightGBM, whose sets of kinds
are no thresholds. As in `heavy.py` an interrupted trial trains again from its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from automl.config import Task
from automl.data.dataset import Places
from automl.models.families.boosting.family import LightGBMParams
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
    "squared_error": "regression",
    "absolute_error": "regression_l1",
    "quantile": "quantile",
    "poisson": "poisson",
}
_DEFAULT_LEFT, _MISSING_SHIFT, _MISSING_IS_NAN = 2, 2, 2
"""Parts of LightGBM's `decision_type`: the bit of a missing cell that goes left, and the place and
value of the number that says that the column had missing cells in training."""


class LightGBMHeavySide(BoostingHeavySide):
    """The `family.HeavySide` of trees that LightGBM grows."""

    def grow(self, trial_fit: TrialFit, on_round: OnRound, present: Places) -> None:
        booster = unfitted_booster(trial_fit)
        n_outputs = booster.num_model_per_iteration()
        # The first trees hold the constant that the others correct.
        reporter = BoostingReporter(trial_fit, on_round, np.zeros(n_outputs), present)
        for number in range(trial_fit.n_rounds):
            first = booster.current_iteration()
            for _ in range(trial_fit.family.iterations_per_epoch):
                booster.update()
            text = booster.model_to_string(start_iteration=first)
            grew = booster.current_iteration() > first  # else no leaf can be divided any more
            reporter.report(number, trees_from_text(text) if grew else [])


def unfitted_booster(trial_fit: TrialFit) -> Any:
    """Return LightGBM's booster of a trial, which has no trees yet."""
    import lightgbm

    x = trial_fit.data.view(VIEWS[trial_fit.params.encoding])[0]
    y, weight, params = trial_fit.targets, None, booster_params(trial_fit)
    if trial_fit.data.task is Task.classification:
        y, weight = np.unique(y, return_inverse=True)[1], row_weights(trial_fit)
    rows = lightgbm.Dataset(x, y, weight=weight, params=params)
    return lightgbm.Booster(params, rows)


def booster_params(trial_fit: TrialFit) -> Mapping[str, Any]:
    """Return LightGBM's params of a trial; its result does not depend on the number of threads."""
    params, data = trial_fit.params, trial_fit.data
    assert isinstance(params, LightGBMParams), "params of this family"
    own: dict[str, Any] = {
        "objective": _OBJECTIVES.get(data.loss.name),
        "alpha": data.loss.quantile,
    }
    if data.task is Task.classification:
        n_present = len(np.unique(data.train.y))
        own = {"objective": "binary"}
        if n_present > 2:
            own = {"objective": "multiclass", "num_class": n_present}
    return {
        **own,
        "learning_rate": float(params.learning_rate),
        "num_leaves": params.num_leaves,
        "min_data_in_leaf": params.min_child_samples,
        "lambda_l2": float(params.reg_lambda),
        "feature_fraction": float(params.colsample_bytree),
        "bagging_fraction": float(params.subsample),
        "bagging_freq": 1 if params.subsample < 1 else 0,
        "extra_trees": params.extra_trees,
        "seed": trial_fit.seed % 2**31,
        "num_threads": trial_fit.n_threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }


def trees_from_text(text: str) -> list[TreeArrays]:
    """Return the trees of LightGBM's text of a model."""
    trees = text.partition("end of trees")[0].split("\nTree=")[1:]
    return [tree_from_nodes(_parse_nodes(tree)) for tree in trees]


def _parse_nodes(text: str) -> TreeNodes:
    """Return the nodes of a tree: inner nodes, then leaves, to which negative numbers point."""
    entries = dict(line.split("=", 1) for line in text.splitlines()[1:] if "=" in line)
    value = _numbers(entries, "leaf_value", np.float64)
    threshold = _numbers(entries, "threshold", np.float64)
    n_inner = len(threshold)
    decision = _numbers(entries, "decision_type", np.int64)
    has_missing = decision >> _MISSING_SHIFT & 3 == _MISSING_IS_NAN
    # A missing cell in a column that had none in training counts as 0.
    missing_right = np.where(has_missing, decision & _DEFAULT_LEFT == 0, threshold < 0)
    left, right = (
        np.where(child < 0, n_inner + ~child, child)
        for child in (_numbers(entries, f"{side}_child", np.int64) for side in ("left", "right"))
    )
    leaves = np.zeros(len(value), dtype=np.int64)
    return TreeNodes(
        left=np.concatenate([left, leaves]),
        right=np.concatenate([right, leaves]),
        is_leaf=np.arange(n_inner + len(value)) >= n_inner,
        column=np.concatenate([_numbers(entries, "split_feature", np.int64), leaves]),
        threshold=np.concatenate(
            [threshold.clip(-LARGEST_THRESHOLD, LARGEST_THRESHOLD), leaves.astype(np.float64)]
        ),
        missing_right=np.concatenate([missing_right, leaves > 0]),
        value=np.concatenate([np.zeros(n_inner), value])[:, None],
    )


def _numbers(entries: Mapping[str, str], name: str, kind: type) -> Any:
    return np.array(entries.get(name, "").split(), dtype=kind)


SIDE = LightGBMHeavySide()
