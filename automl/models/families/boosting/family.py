"""The light side of gradient boosted trees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import LOSSES, TrainingConfig, check
from automl.models.families.table_family import TableFamily, n_spread_columns, n_tree_columns
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
    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset

PLAIN_ENCODING, ONE_HOT_ENCODING = "plain", "one_hot"
TREE_ENCODINGS = (PLAIN_ENCODING, ONE_HOT_ENCODING)
MAX_LEAVES = 1024
"""Of one of some hundred trees: more are no small steps any more."""
MOST_EPOCHS, PATIENCE_EPOCHS = 40, 5
"""Of trials whose length nobody says: at most, and without a better value."""
_BINS = 256
_BIN_BYTES = 24
"""Of a histogram: two sums and a count."""
_HISTOGRAM_SECONDS, _CELL_SECONDS = 2.8e-6, 2e-8
"""Of a core, for a column of a leaf and for a cell of a tree's rows (experiments/020-long)."""

_RULES: Mapping[str, ParamRule] = {
    "learning_rate": (number_check(math.ulp(0.0)), "a finite number greater than 0"),
    "max_leaf_nodes": (
        lambda value: whole_number_check(2)(value) and int(value or 0) <= MAX_LEAVES,
        f"a whole number from 2 to {MAX_LEAVES}",
    ),
    "min_samples_leaf": (whole_number_check(1), "a whole number from 1"),
    "l2_regularization": (number_check(0), "a finite number, 0 or more"),
    "max_features": (
        lambda value: number_check(math.ulp(0.0))(value) and float(value or 0) <= 1,
        "a share of the columns, above 0 and at most 1",
    ),
    "encoding": (lambda value: value in TREE_ENCODINGS, " or ".join(TREE_ENCODINGS)),
    CLASS_WEIGHT_PARAM: CLASS_WEIGHT_RULE,
}


@dataclass(frozen=True)
class BoostingParams:
    """The params of one trial. Raises ValueError naming the param, its value and the rule."""

    learning_rate: float = 0.1
    """What of a tree's correction is taken."""
    max_leaf_nodes: int = 31
    """Leaves of a tree, at most."""
    min_samples_leaf: int = 20
    """Rows in a leaf, at least."""
    l2_regularization: float = 0.0
    """Draws what a leaf of few rows says towards 0."""
    max_features: float = 1.0
    """Share of the columns that a node looks at."""
    encoding: str = PLAIN_ENCODING
    """one_hot: of a category of few kinds each is a column of 0 and 1, so that a node tells one
    kind from all others; plain: it is one column of codes."""
    class_weight: str = "none"
    """balanced: a row counts the more the rarer its class is, all classes the same together."""

    def __post_init__(self) -> None:
        for name in _RULES:
            check_param_value(name, getattr(self, name), _RULES)


def n_encoded_columns(encoding: str, columns: TableColumns) -> int:
    """Columns that the trees see."""
    return n_spread_columns(columns) if encoding == ONE_HOT_ENCODING else n_tree_columns(columns)


@dataclass
class BoostingFamily(TableFamily):
    """Trees of which each corrects those before it (Friedman, 2001), by histograms."""

    heavy = "automl.models.families.boosting.heavy"
    rules: ClassVar[Mapping[str, ParamRule]] = _RULES
    losses = LOSSES

    iterations_per_epoch: int = 10
    """Corrections between two reports; a whole trial has `training.epochs` times as many, and keeps
    those up to its best report."""

    def __post_init__(self) -> None:
        n = self.iterations_per_epoch
        check(n >= 1, "model.iterations_per_epoch", n, "must be at least 1.")

    def trained(self, training: TrainingConfig) -> TrainingConfig:
        """Few leaves that learn slowly want more corrections than many that learn fast."""
        if training.epochs is not None:
            return training
        patience = training.patience_epochs or PATIENCE_EPOCHS
        return replace(training, epochs=MOST_EPOCHS, patience_epochs=patience)

    def params(self, given: Params) -> BoostingParams:
        return BoostingParams(**given)  # type: ignore[arg-type]  # __post_init__ checks each

    def size_bytes(self, params: BoostingParams, dataset: Dataset, training: TrainingConfig) -> int:
        """The view of the rows, as scikit-learn bins it and copies it before; gradients and sums of
        the rows; histograms of the nodes of a tree."""
        n_train, n_rows = len(dataset.train), len(dataset.train) + len(dataset.validation)
        n_columns, n_outputs = (
            n_encoded_columns(params.encoding, dataset.columns),
            dataset.n_outputs,
        )
        rows = n_rows * n_columns * 4 + n_train * n_columns * (8 + 2)
        gradients = n_rows * n_outputs * 8 * 6
        histograms = 2 * params.max_leaf_nodes * n_columns * _BINS * _BIN_BYTES
        trees = (
            params.max_leaf_nodes * self.iterations_per_epoch * training.n_epochs * n_outputs * 160
        )
        return rows + gradients + histograms + trees

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Histograms of each column for each tree, and each cell put into them; about half of the
        epochs where patience ends it."""
        one = dataset.of_one_model
        share = 1 if training.patience_epochs is None else 2
        n_trees = self.iterations_per_epoch * math.ceil(training.n_epochs / share)
        n_trees *= one.n_outputs if one.n_outputs > 2 else 1
        defaults = BoostingParams()
        n_leaves = min(defaults.max_leaf_nodes, len(one.train) // defaults.min_samples_leaf)
        per_column = n_leaves * _HISTOGRAM_SECONDS + len(one.train) * _CELL_SECONDS
        return dataset.n_models * n_trees * len(one.columns.all) * per_column

    def identity(self) -> Mapping[str, Any]:
        return {"family": "boosting", "iterations_per_epoch": self.iterations_per_epoch}
