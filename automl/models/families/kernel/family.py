"""Defines the light side of kernel models: params, settings, memory and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from automl.config import TrainingConfig, check_setting
from automl.models.families.table_family import CLASS_WEIGHT_RULES, TableFamily, TableParams
from automl.models.networks.network_family import POSITIVE, ParamRule, one_of
from automl.trial import ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

RBF, MATERN = "rbf", "matern"
KERNEL_KINDS = (RBF, MATERN)
MAX_ROWS, MAX_OWN = 512, 512
"""Largest number of rows that lengths are learned from, and of columns with their own lengths."""
MOST_ROWS = 10_000
"""Number of rows above which boosted trees are as good as a kernel, and faster."""
_MATRICES = 8
"""Number of square matrices of the rows that lengths are learned from, at one time."""
_OPERATION_SECONDS = 1e-10
"""Time of one core for an operation in a product of large matrices."""
_N_STEPS, _N_SOLVER_STEPS = 80, 100

_RULES: Mapping[str, ParamRule] = {
    "kind": one_of(KERNEL_KINDS),
    "spread": POSITIVE,
    "l2": POSITIVE,
    **CLASS_WEIGHT_RULES,
}


@dataclass(frozen=True)
class KernelParams(TableParams):
    """The params of one trial."""

    rules = _RULES

    kind: str = RBF
    """How similarity falls with distance: rbf, infinitely smooth; matern, twice differentiable
    (5/2)."""
    spread: float = 1.0
    """How much the lengths of columns may differ: about the standard deviation of their logarithms.
    A length is how far a column has to change until the target does."""
    l2: float = 1.0
    """Penalty of the weights, as a multiple of the noise or variance that the rows have."""


@dataclass
class KernelFamily(TableFamily):
    """A Gaussian process's mean for numbers, and logistic regression by a kernel for classes.

    Each column has a length of its own, which is learned. It suits smooth functions of few rows.
    """

    heavy = "automl.models.families.kernel.heavy"
    trial_params = KernelParams
    fitting_module = "sklearn.linear_model"
    max_auto_rows: ClassVar[int | None] = MOST_ROWS

    landmarks: int = 1000
    """Largest number of training rows that other rows are compared with; of fewer rows, all are."""

    def __post_init__(self) -> None:
        check_setting(self.landmarks >= 1, "model.landmarks", self.landmarks, "must be at least 1.")

    def n_reports(self, training: TrainingConfig) -> int:
        """Return 1, whatever `training.epochs` says."""
        return 1

    def size_bytes(self, params: KernelParams, dataset: Dataset, training: TrainingConfig) -> int:
        """Return the memory of all rows' features in float32 and float64, of three copies of their
        similarity to the landmarks, and of the matrices that lengths are learned from."""
        from automl.data.features import n_features

        n_train, n_validation = len(dataset.train), len(dataset.validation)
        width, n_landmarks = n_features(dataset.columns), min(self.landmarks, n_train)
        features = (n_train + n_validation) * width * 12
        alike = (3 * n_train + 2 * n_landmarks) * n_landmarks * 8
        return features + alike + min(n_train, MAX_ROWS) ** 2 * 8 * _MATRICES

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time of the steps that learn lengths, and of the solver for the landmarks."""
        from automl.data.features import n_features

        model_data = dataset.first_fold
        n_rows, width = len(model_data.train), n_features(dataset.columns)
        n_landmarks, n_learned = min(self.landmarks, n_rows), min(n_rows, MAX_ROWS)
        step = n_learned**3 * 2 + n_learned**2 * width * 4
        solver = (
            n_rows
            * n_landmarks
            * (width + n_landmarks + _N_SOLVER_STEPS * model_data.n_outputs * 2)
        )
        return dataset.n_models * (_N_STEPS * step + 2 * solver) * _OPERATION_SECONDS
