"""Defines the light side of linear models: params, memory and portfolio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automl.config import TrainingConfig
from automl.models.families.table_family import CLASS_WEIGHT_RULES, TableFamily, TableParams
from automl.models.networks.network_family import POSITIVE, ParamRule
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

MOST_L2 = 1e5
"""Largest `l2` that is searched (`conf/space/`)."""
_CELL_SECONDS = 5e-7
"""Seconds of one core for a cell of a fit (experiments/020-long)."""
_RULES: Mapping[str, ParamRule] = {"l2": POSITIVE, **CLASS_WEIGHT_RULES}


@dataclass(frozen=True)
class LinearParams(TableParams):
    """The params of one trial."""

    rules = _RULES

    l2: float = 1.0
    """Weight of half the sum of squared weights, beside the sum of the rows' losses. In regression,
    it is the weight of the whole sum, as in ridge regression."""


@dataclass
class LinearFamily(TableFamily):
    """Logistic regression for classes and ridge regression for numbers, each fitted in one go."""

    heavy = "automl.models.families.linear.heavy"
    trial_params = LinearParams
    fitting_module = "sklearn.linear_model"

    def n_reports(self, training: TrainingConfig) -> int:
        """Return 1, whatever `training.epochs` says."""
        return 1

    def size_bytes(self, params: LinearParams, dataset: Dataset, training: TrainingConfig) -> int:
        """Return the memory of all rows' features, of the solver's two copies of the training rows'
        features, and of its history of 10 steps."""
        from automl.data.features import n_features

        n_train, n_validation = len(dataset.train), len(dataset.validation)
        width, n_outputs = n_features(dataset.columns), dataset.n_outputs
        features = (n_train + n_validation) * width * 4 + n_train * width * 8
        return features + n_train * n_outputs * 8 * 4 + width * n_outputs * 8 * 24

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time of the solver's steps, each of which reads all features."""
        from automl.data.features import n_features

        model_data = dataset.first_fold
        n_cells = len(model_data.train) * n_features(dataset.columns)
        return dataset.n_models * n_cells * max(1, dataset.n_outputs // 2) * _CELL_SECONDS

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """Return params to try first; with more features than rows, strong regularisation leads.

        More features than rows can separate any classes in training. An `l2` of about the number of
        features then goes first. On 500 rows of 10,000 columns, three of which matter, the log-loss
        was 0.689 in place of 0.861; that of the majority class is 0.693.
        """
        points = super().portfolio(dataset)
        if dataset is None:
            return points
        from automl.data.features import n_features

        model_data = dataset.first_fold
        width = n_features(model_data.columns)
        if width <= len(model_data.train):
            return points
        return [{"l2": min(MOST_L2, 10.0 ** round(math.log10(width)))}, *points]
