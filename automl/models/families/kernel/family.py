"""The light side of kernel models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import TrainingConfig, check
from automl.models.families.table_family import TableFamily
from automl.models.networks.network_family import (
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    ParamRule,
    check_param_value,
    number_check,
)
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

RBF, MATERN = "rbf", "matern"
KERNEL_KINDS = (RBF, MATERN)
MAX_ROWS, MAX_OWN = 512, 512
"""Rows by which lengths are learned, and columns that have lengths of their own."""
MOST_ROWS = 10_000
"""Of more `model.auto` tries none: boosted trees are there as good, and quicker."""
_MATRICES = 8
"""As large as the rows that are learned by are many; at one time."""
_OPERATION_SECONDS = 1e-10
"""Of a core: a product of large matrices."""
_N_STEPS, _N_SOLVER_STEPS = 80, 100

_ABOVE_0 = (number_check(math.ulp(0.0)), "a finite number greater than 0")
_RULES: Mapping[str, ParamRule] = {
    "kind": (lambda value: value in KERNEL_KINDS, " or ".join(KERNEL_KINDS)),
    "spread": _ABOVE_0,
    "l2": _ABOVE_0,
    CLASS_WEIGHT_PARAM: CLASS_WEIGHT_RULE,
}


@dataclass(frozen=True)
class KernelParams:
    """The params of one trial. Raises ValueError naming the param, its value and the rule."""

    kind: str = RBF
    """How likeness falls with distance: rbf, smooth without end; matern, twice (5/2)."""
    spread: float = 1.0
    """By how much columns may differ in how far one has to change until the target does: about the
    standard deviation of the logarithms of these lengths."""
    l2: float = 1.0
    """What weights count, as a multiple of what the rows themselves say."""
    class_weight: str = "none"
    """balanced: a row counts the more the rarer its class is, all classes the same together."""

    def __post_init__(self) -> None:
        for name in _RULES:
            check_param_value(name, getattr(self, name), _RULES)


@dataclass
class KernelFamily(TableFamily):
    """A Gaussian process's mean for numbers, logistic regression by a kernel for classes; each
    column has a length of its own, which is learned. For smooth functions of few rows."""

    heavy = "automl.models.families.kernel.heavy"
    rules: ClassVar[Mapping[str, ParamRule]] = _RULES
    fits_with = "sklearn.linear_model"
    most_rows: ClassVar[int | None] = MOST_ROWS

    landmarks: int = 1000
    """Training rows that others are compared with, at most: of fewer rows all."""

    def __post_init__(self) -> None:
        check(self.landmarks >= 1, "model.landmarks", self.landmarks, "must be at least 1.")

    def params(self, given: Params) -> KernelParams:
        return KernelParams(**given)  # type: ignore[arg-type]  # __post_init__ checks each

    def n_reports(self, training: TrainingConfig) -> int:
        """One, whatever `training.epochs` says."""
        return 1

    def size_bytes(self, params: KernelParams, dataset: Dataset, training: TrainingConfig) -> int:
        """The features of all rows as they are and wider; how alike they and the landmarks are,
        three times; the matrices of what lengths are learned by."""
        from automl.data.features import n_features

        n_train, n_validation = len(dataset.train), len(dataset.validation)
        width, n_landmarks = n_features(dataset.columns), min(self.landmarks, n_train)
        features = (n_train + n_validation) * width * 12
        alike = (3 * n_train + 2 * n_landmarks) * n_landmarks * 8
        return features + alike + min(n_train, MAX_ROWS) ** 2 * 8 * _MATRICES

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Steps by which lengths are learned, and what the solver takes of the landmarks."""
        from automl.data.features import n_features

        one = dataset.of_one_model
        n_rows, width = len(one.train), n_features(dataset.columns)
        n_landmarks, n_learned = min(self.landmarks, n_rows), min(n_rows, MAX_ROWS)
        step = n_learned**3 * 2 + n_learned**2 * width * 4
        solver = n_rows * n_landmarks * (width + n_landmarks + _N_SOLVER_STEPS * one.n_outputs * 2)
        return dataset.n_models * (_N_STEPS * step + 2 * solver) * _OPERATION_SECONDS

    def identity(self) -> Mapping[str, Any]:
        return {"family": "kernel", "landmarks": self.landmarks}
