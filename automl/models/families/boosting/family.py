"""Defines the light side of gradient boosted trees: params, settings, memory and time.

scikit-learn grows them in the family `boosting`. The families `lightgbm` and `catboost` have their
trees grown by the library of that name, each an extra.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from automl.config import LOSSES, TrainingConfig, check_setting
from automl.models.families.table_family import (
    CLASS_WEIGHT_RULES,
    TableFamily,
    TableParams,
    n_spread_columns,
    n_tree_columns,
)
from automl.models.networks.network_family import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE_OF_COLUMNS,
    ParamRule,
    one_of,
    whole_number,
)
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset

PLAIN_ENCODING, ONE_HOT_ENCODING = "plain", "one_hot"
TREE_ENCODINGS = (PLAIN_ENCODING, ONE_HOT_ENCODING)
MAX_LEAVES = 1024
"""Largest `max_leaf_nodes`: a tree among some hundred is a small step only with few leaves."""
MOST_EPOCHS, PATIENCE_EPOCHS = 40, 5
"""Largest number of epochs, and number of epochs without a better value that end a trial, if the
settings do not say them."""
LARGE_TABLE_ROWS, MOST_EPOCHS_OF_LARGE = 20_000, 160
"""Number of training rows above which a table is large, and the largest number of epochs on such a
table, where small steps go on improving for longer (experiments/013-tables/large.md)."""
_BINS = 256
_BIN_BYTES = 24
"""Size of a bin of a histogram: two sums and a count."""
_HISTOGRAM_SECONDS, _CELL_SECONDS = 2.8e-6, 2e-8
"""Seconds of one core for a column of a leaf, and for a cell of a tree's rows
(experiments/020-long)."""

_RULES: Mapping[str, ParamRule] = {
    "learning_rate": POSITIVE,
    "max_leaf_nodes": whole_number(2, MAX_LEAVES),
    "min_samples_leaf": whole_number(1),
    "l2_regularization": NOT_NEGATIVE,
    "max_features": SHARE_OF_COLUMNS,
    "encoding": one_of(TREE_ENCODINGS),
    **CLASS_WEIGHT_RULES,
}


@dataclass(frozen=True)
class BoostingParams(TableParams):
    """The params of one trial."""

    rules = _RULES

    learning_rate: float = 0.1
    """Share of each tree's correction that is added."""
    max_leaf_nodes: int = 31
    """Leaves of a tree, at most."""
    min_samples_leaf: int = 20
    """Rows in a leaf, at least."""
    l2_regularization: float = 0.0
    """Weight that draws the value of a leaf of few rows towards 0."""
    max_features: float = 1.0
    """Share of the columns that a node considers."""
    encoding: str = PLAIN_ENCODING
    """one_hot: each kind of a category of 3 to 64 kinds is a column of 0 and 1, so that a node can
    separate one kind from all others; plain: a category is one column of codes."""

    @property
    def n_leaves(self) -> int:
        """Largest number of leaves of a tree."""
        return self.max_leaf_nodes


_FLAG: ParamRule = (lambda value: type(value) is bool, "true or false")


@dataclass(frozen=True)
class LightGBMParams(TableParams):
    """The params of one trial of LightGBM, with the names and defaults of its estimators."""

    rules: ClassVar[Mapping[str, ParamRule]] = {
        "learning_rate": POSITIVE,
        "num_leaves": whole_number(2, MAX_LEAVES),
        "min_child_samples": whole_number(1),
        "reg_lambda": NOT_NEGATIVE,
        "colsample_bytree": SHARE_OF_COLUMNS,
        "subsample": SHARE_OF_COLUMNS,
        "extra_trees": _FLAG,
        "encoding": one_of(TREE_ENCODINGS),
        **CLASS_WEIGHT_RULES,
    }

    learning_rate: float = 0.1
    """Share of each tree's correction that is added."""
    num_leaves: int = 31
    """Leaves of a tree, at most."""
    min_child_samples: int = 20
    """Rows in a leaf, at least."""
    reg_lambda: float = 0.0
    """Weight that draws the value of a leaf of few rows towards 0."""
    colsample_bytree: float = 1.0
    """Share of the columns that a tree considers."""
    subsample: float = 1.0
    """Share of the rows, drawn anew for each tree, that it learns from."""
    extra_trees: bool = False
    """Whether a node tries one random threshold of each column instead of all."""
    encoding: str = PLAIN_ENCODING
    """The columns that the trees see of a category, as in `boosting`."""

    @property
    def n_leaves(self) -> int:
        """Largest number of leaves of a tree."""
        return self.num_leaves


@dataclass(frozen=True)
class CatBoostParams(TableParams):
    """The params of one trial of CatBoost, whose trees ask one question at each level."""

    rules: ClassVar[Mapping[str, ParamRule]] = {
        "learning_rate": POSITIVE,
        "depth": whole_number(1, 10),
        "l2_leaf_reg": NOT_NEGATIVE,
        "random_strength": NOT_NEGATIVE,
        "bagging_temperature": NOT_NEGATIVE,
        "encoding": one_of(TREE_ENCODINGS),
        **CLASS_WEIGHT_RULES,
    }

    learning_rate: float = 0.1
    """Share of each tree's correction that is added."""
    depth: int = 6
    """Number of questions of a tree, which has two to this power leaves."""
    l2_leaf_reg: float = 3.0
    """Weight that draws the value of a leaf of few rows towards 0."""
    random_strength: float = 1.0
    """Amount of noise in the scores that a question is chosen by."""
    bagging_temperature: float = 1.0
    """Spread of the random weights of the rows (Bayesian bootstrap); 0: all rows count the same."""
    encoding: str = PLAIN_ENCODING
    """The columns that the trees see of a category, as in `boosting`."""

    @property
    def n_leaves(self) -> int:
        """Largest number of leaves of a tree."""
        return int(2**self.depth)


def n_encoded_columns(encoding: str, columns: TableColumns) -> int:
    """Return the number of columns that the trees see."""
    return n_spread_columns(columns) if encoding == ONE_HOT_ENCODING else n_tree_columns(columns)


@dataclass
class BoostingFamily(TableFamily):
    """Trees that each correct the trees before it, grown by histograms (Friedman, 2001)."""

    heavy = "automl.models.families.boosting.heavy"
    trial_params: ClassVar[type[TableParams]] = BoostingParams
    n_default_points = 2
    losses = LOSSES

    iterations_per_epoch: int = 10
    """Corrections between two reports; a whole trial has `training.epochs` times as many, and keeps
    the corrections up to its best report."""

    def __post_init__(self) -> None:
        n = self.iterations_per_epoch
        check_setting(n >= 1, "model.iterations_per_epoch", n, "must be at least 1.")

    def with_length(self, training: TrainingConfig, n_rows: int | None = None) -> TrainingConfig:
        """Return the settings with a length and patience, if they say no length."""
        if training.epochs is not None:
            return training
        patience = training.patience_epochs or PATIENCE_EPOCHS
        is_large = n_rows is not None and n_rows > LARGE_TABLE_ROWS
        n_epochs = MOST_EPOCHS_OF_LARGE if is_large else MOST_EPOCHS
        return replace(training, epochs=n_epochs, patience_epochs=patience)

    def size_bytes(
        self,
        params: BoostingParams | LightGBMParams | CatBoostParams,
        dataset: Dataset,
        training: TrainingConfig,
    ) -> int:
        """Return the memory of the rows' view, which libraries copy and bin, of gradients and sums
        of the rows, of a tree's histograms, and of the trees."""
        n_train, n_rows = len(dataset.train), len(dataset.train) + len(dataset.validation)
        n_columns, n_outputs = (
            n_encoded_columns(params.encoding, dataset.columns),
            dataset.n_outputs,
        )
        rows = n_rows * n_columns * 4 + n_train * n_columns * (8 + 2)
        gradients = n_rows * n_outputs * 8 * 6
        histograms = 2 * params.n_leaves * n_columns * _BINS * _BIN_BYTES
        trees = params.n_leaves * self.iterations_per_epoch * training.n_epochs * n_outputs * 160
        return rows + gradients + histograms + trees

    def likely_reports(self, params: Params, training: TrainingConfig, n_rows: int) -> int:
        """Return half of all reports where patience may end the trial."""
        return math.ceil(training.n_epochs / (1 if training.patience_epochs is None else 2))

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time to make histograms of each column."""
        model_data = dataset.first_fold
        n_trees = self.iterations_per_epoch * self.likely_reports({}, training, model_data.n_train)
        n_trees *= model_data.n_outputs if model_data.n_outputs > 2 else 1
        defaults = BoostingParams()
        n_leaves = min(defaults.max_leaf_nodes, len(model_data.train) // defaults.min_samples_leaf)
        per_column = n_leaves * _HISTOGRAM_SECONDS + len(model_data.train) * _CELL_SECONDS
        return dataset.n_models * n_trees * len(model_data.columns.all) * per_column


@dataclass
class LightGBMFamily(BoostingFamily):
    """Boosted trees that LightGBM grows (Ke et al., 2017)."""

    heavy = "automl.models.families.boosting.lightgbm_heavy"
    trial_params = LightGBMParams
    option = extra = library = fitting_module = "lightgbm"


@dataclass
class CatBoostFamily(BoostingFamily):
    """Boosted trees that CatBoost grows (Prokhorenkova et al., 2018), each with one question a
    level."""

    heavy = "automl.models.families.boosting.catboost_heavy"
    trial_params = CatBoostParams
    n_default_points = 1
    option = extra = library = fitting_module = "catboost"
