"""Defines the light side of forests: params, settings, memory and time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automl.config import Task, TrainingConfig, check_setting
from automl.models.families.table_family import (
    CLASS_WEIGHT_RULES,
    TableFamily,
    TableParams,
    n_tree_columns,
)
from automl.models.networks.network_family import (
    SHARE_OF_COLUMNS,
    ParamRule,
    one_of,
    or_null,
    whole_number,
)
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

KINDS = ("extra_trees", "random_forest")
MAX_TRIAL_LEAVES = 4_000_000
"""Largest number of leaves of all trees of a trial, which take 50 MB on disk at most."""
LEAST_FEATURES = 0.01
"""Smallest `max_features` that is searched (`conf/space/`)."""
_NODE_BYTES = 64
"""Size of a node in scikit-learn, without the values of a leaf."""
_CELL_SECONDS = 3.6e-9
"""Time of one core for a cell of the training rows and a level of a tree (experiments/020-long)."""

_RULES: Mapping[str, ParamRule] = {
    "kind": one_of(KINDS),
    "max_features": SHARE_OF_COLUMNS,
    "min_samples_leaf": whole_number(1),
    "max_leaf_nodes": or_null(whole_number(2), "null for as many as the rows make"),
    **CLASS_WEIGHT_RULES,
}


@dataclass(frozen=True)
class TreesParams(TableParams):
    """The params of one trial."""

    rules = _RULES

    kind: str = "extra_trees"
    """extra_trees: all rows, random thresholds (Geurts et al., 2006); random_forest: a bootstrap
    sample of the rows, the best thresholds (Breiman, 2001)."""
    max_features: float = 0.5
    """Share of the columns that a node considers."""
    min_samples_leaf: int = 2
    """Rows in a leaf, at least."""
    max_leaf_nodes: int | None = None
    """Leaves of a tree, at most; the leaves that improve the tree most are made first. null: as
    many as the rows make."""


@dataclass
class TreesFamily(TableFamily):
    """Forests, the mean of trees that are grown at random and independently."""

    heavy = "automl.models.families.trees.heavy"
    trial_params = TreesParams
    n_default_points = 3

    trees_per_epoch: int = 5
    """Trees between two reports; a whole trial has `training.epochs` times as many."""

    def __post_init__(self) -> None:
        n_trees = self.trees_per_epoch
        check_setting(n_trees >= 1, "model.trees_per_epoch", n_trees, "must be at least 1.")

    def size_bytes(self, params: TreesParams, dataset: Dataset, training: TrainingConfig) -> int:
        """Return the memory of the rows' view, sums and positions, of scikit-learn's nodes of one
        epoch, and of all stored trees, twice because writing copies them."""
        n_train, n_rows = len(dataset.train), len(dataset.train) + len(dataset.validation)
        n_outputs = dataset.n_outputs
        n_leaves = min(
            n_train // params.min_samples_leaf + 1,
            params.max_leaf_nodes or n_train,
            self.max_round_leaves(dataset, training.n_epochs) // self.trees_per_epoch + 1,
        )
        nodes = 2 * n_leaves * self.trees_per_epoch
        kept = nodes * training.n_epochs * (6 + 2 * n_outputs) * 2
        rows = n_rows * (4 * len(dataset.columns.all) + 8 * (n_outputs * 4 + 4))
        return rows + nodes * (_NODE_BYTES + 8 * n_outputs) + kept

    def max_round_leaves(self, dataset: Dataset, n_epochs: int) -> int:
        """Return the most leaves of an epoch's trees that keep the trial's file small."""
        n_models = (dataset.whole or dataset).n_models
        return max(self.trees_per_epoch, MAX_TRIAL_LEAVES // (n_epochs * n_models))

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time to read each cell for each level of each tree."""
        model_data = dataset.first_fold
        n_rows = len(model_data.train)
        n_cells = n_rows * len(model_data.columns.all) * math.log2(n_rows)
        return dataset.n_models * self.trees_per_epoch * training.n_epochs * n_cells * _CELL_SECONDS

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """Return params to try first; scikit-learn's defaults for the data set follow the first."""
        points = super().portfolio(dataset)
        if dataset is None:
            return points
        default = {"max_features": _default_share(dataset), "min_samples_leaf": 1}
        defaults: list[Params] = [{"kind": kind, **default} for kind in KINDS]
        return [points[0], *(point for point in defaults if point != points[0]), *points[1:]]


def _default_share(dataset: Dataset) -> float:
    """Return the share of the columns that scikit-learn's forests consider by default.

    It is the root of the number of columns for classes, and all columns for numbers.
    """
    n_columns = n_tree_columns(dataset.columns)
    if dataset.task is Task.regression or n_columns < 2:
        return 1.0
    # scikit-learn rounds the product of share and columns down.
    return max(LEAST_FEATURES, (math.isqrt(n_columns) + 0.5) / n_columns)
