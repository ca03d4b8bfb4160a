"""Defines the light side of forests: params, settings, memory and time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import TrainingConfig, check_setting
from automl.models.families.table_family import TableFamily
from automl.models.networks.network_family import (
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    ParamRule,
    check_param_value,
    number_check,
    whole_number_check,
)
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

KINDS = ("extra_trees", "random_forest")
MAX_TRIAL_LEAVES = 4_000_000
"""Largest number of leaves of all trees of a trial, which take some 50 MB on disk."""
_NODE_BYTES = 64
"""Size of a node in scikit-learn, without the values of a leaf."""
_CELL_SECONDS = 4e-8
"""Time of one core for a tree and a cell of the training rows (experiments/020-long)."""

_RULES: Mapping[str, ParamRule] = {
    "kind": (lambda value: value in KINDS, f"one of {', '.join(KINDS)}"),
    "max_features": (
        lambda value: number_check(math.ulp(0.0))(value) and float(value or 0) <= 1,
        "a share of the columns, above 0 and at most 1",
    ),
    "min_samples_leaf": (whole_number_check(1), "a whole number from 1"),
    "max_leaf_nodes": (
        lambda value: value is None or whole_number_check(2)(value),
        "a whole number from 2, or null for as many as the rows make",
    ),
    CLASS_WEIGHT_PARAM: CLASS_WEIGHT_RULE,
}


@dataclass(frozen=True)
class TreesParams:
    """The params of one trial. Raises ValueError naming the param, its value and the rule."""

    kind: str = "extra_trees"
    """extra_trees: all rows, random thresholds (Geurts et al., 2006); random_forest: a bootstrap
    sample of the rows, the best thresholds (Breiman, 2001)."""
    max_features: float = 0.5
    """Share of the columns that a node considers."""
    min_samples_leaf: int = 2
    """Rows in a leaf, at least."""
    max_leaf_nodes: int | None = None
    """Leaves of a tree, at most; the leaves that improve the tree most are made first. None: as
    many as the rows make."""
    class_weight: str = "none"
    """balanced: rows of rare classes count more, so that all classes count the same; none: all rows
    count the same."""

    def __post_init__(self) -> None:
        for name in _RULES:
            check_param_value(name, getattr(self, name), _RULES)


@dataclass
class TreesFamily(TableFamily):
    """Forests, the mean of trees that are grown at random and independently."""

    heavy = "automl.models.families.trees.heavy"
    rules: ClassVar[Mapping[str, ParamRule]] = _RULES

    trees_per_epoch: int = 5
    """Trees that are added between two reports; a whole trial has `training.epochs` times as
    many."""

    def __post_init__(self) -> None:
        n_trees = self.trees_per_epoch
        check_setting(n_trees >= 1, "model.trees_per_epoch", n_trees, "must be at least 1.")

    def params(self, trial_params: Params) -> TreesParams:
        return TreesParams(**trial_params)  # type: ignore[arg-type]  # __post_init__ checks each

    def size_bytes(self, params: TreesParams, dataset: Dataset, training: TrainingConfig) -> int:
        """Return the memory of the rows' view, sums and positions, of scikit-learn's nodes of one
        epoch, and of all stored trees, twice because writing copies them."""
        n_train, n_rows = len(dataset.train), len(dataset.train) + len(dataset.validation)
        n_outputs = dataset.n_outputs
        most = n_train // params.min_samples_leaf + 1
        n_leaves = min(most, self.max_leaves(params, dataset, training.n_epochs) or most)
        nodes = 2 * n_leaves * self.trees_per_epoch
        kept = nodes * training.n_epochs * (6 + 2 * n_outputs) * 2
        rows = n_rows * (4 * len(dataset.columns.all) + 8 * (n_outputs * 4 + 4))
        return rows + nodes * (_NODE_BYTES + 8 * n_outputs) + kept

    def max_leaves(self, params: TreesParams, dataset: Dataset, n_epochs: int) -> int | None:
        """Return how many leaves a tree may have so that the file of the trial stays small.

        None: as many as the rows make.
        """
        n_trees = self.trees_per_epoch * n_epochs * (dataset.whole or dataset).n_models
        most = max(2, MAX_TRIAL_LEAVES // n_trees)
        if params.max_leaf_nodes is not None:
            return min(params.max_leaf_nodes, most)
        return most if len(dataset.train) // params.min_samples_leaf > most else None

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time to read each cell for each tree."""
        model_data = dataset.first_fold
        n_cells = len(model_data.train) * len(model_data.columns.all)
        return dataset.n_models * self.trees_per_epoch * training.n_epochs * n_cells * _CELL_SECONDS

    def identity(self) -> Mapping[str, Any]:
        return {"family": "trees", "trees_per_epoch": self.trees_per_epoch}
