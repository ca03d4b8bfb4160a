"""The light side of all families of networks, and the params of their training.

The families share `NetworkTrainer` and `packs/`, and differ in the network that a trial's params
ask for. Names, defaults and checks of the params are here; torch is not loaded.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias, TypeGuard

from automl.config import ExportFormat, LearningRateSchedule, Precision, TrainingConfig
from automl.config.metrics import COMMON_LOSSES
from automl.models.family import Family
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

CLASS_WEIGHT_PARAM = "class_weight"
"""The name of the param that sets class weights, in families that can weigh classes."""
LEAST_PATIENCE = 4
"""The least number of epochs that `patience_steps` stand for, for large tables."""
CLASS_WEIGHTS = ("none", "balanced")
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class TrainingParams:
    """The params of a trial's training, whatever its network. Raises ValueError for wrong ones."""

    lr: float = 1e-3
    """The learning rate."""
    batch_size: int = 128
    """Rows per step; a batch larger than the training part is cut to its size."""
    optimizer: str = "adam"
    """sgd, adam or adamw."""
    momentum: float = 0.9
    """The momentum of the optimizer sgd."""
    beta1: float = 0.9
    """The decay of the mean gradient in adam and adamw."""
    beta2: float = 0.999
    """The decay of the mean squared gradient in adam and adamw."""
    weight_decay: float = 0.0
    """Weight decay: decoupled in adamw (Loshchilov and Hutter, 2019), else in the gradient."""
    clip_norm: float | None = None
    """The largest norm of a step's gradient over all weights; a larger gradient is scaled down to
    it (Pascanu et al., 2013). null scales nothing."""
    precision: str = Precision.float32.value
    """In place of `training.precision`."""
    schedule: str = LearningRateSchedule.constant.value
    """In place of `training.schedule`."""
    ema_decay: float = 0.0
    """In place of `training.ema_decay`."""
    patience_epochs: int | None = None
    """In place of `training.patience_epochs`."""
    accumulate_steps: int = 1
    """In place of `training.accumulate_steps`."""

    def __post_init__(self) -> None:
        for name in TRAINING_NAMES:
            check_param_value(name, getattr(self, name))

    def n_epoch_steps(self, n_rows: int) -> int:
        """Return the number of optimizer steps in an epoch of `n_rows` rows."""
        n_batches = math.ceil(n_rows / min(self.batch_size, n_rows))
        return math.ceil(n_batches / self.accumulate_steps)

    def limit_epochs(self, patience_steps: int | None, n_rows: int) -> int | None:
        """Return the epochs without a better value after which a trial ends; None: at its end."""
        if self.patience_epochs is not None or patience_steps is None:
            return self.patience_epochs
        return max(LEAST_PATIENCE, math.ceil(patience_steps / self.n_epoch_steps(n_rows)))

    @property
    def weighs_classes(self) -> bool:
        """Whether rare classes count as much as frequent ones in the training loss."""
        return False


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))


def fill_from_settings(params: Params, training: TrainingConfig) -> Params:
    """Return a trial's params, with the study's settings where the trial has no such param."""
    return {
        "precision": training.precision.value,
        "schedule": training.schedule.value,
        "ema_decay": training.ema_decay,
        "patience_epochs": training.patience_epochs,
        "accumulate_steps": training.accumulate_steps,
        **params,
    }


ParamRule: TypeAlias = tuple[Callable[[ParamValue], bool], str]
"""A check of a param's value, and the rule in words: "must be …"."""


def one_of(values: Iterable[str]) -> ParamRule:
    return lambda value: value in values, f"one of {', '.join(values)}"


def whole_number(least: int, most: float = math.inf) -> ParamRule:
    text = f"a whole number from {least}" + ("" if most == math.inf else f" to {most}")
    return lambda value: type(value) is int and least <= value <= most, text


def _number(least: float, below: float, text: str) -> ParamRule:
    return lambda value: _is_number(value) and least <= value < below, text


def _is_number(value: ParamValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_LEAST = math.ulp(0.0)
POSITIVE = _number(_LEAST, math.inf, "a finite number greater than 0")
NOT_NEGATIVE = _number(0, math.inf, "a finite number, 0 or more")
BELOW_1 = _number(0, 1, "a number from 0 to below 1")
SHARE_OF_COLUMNS = _number(
    _LEAST, math.nextafter(1, 2), "a share of the columns, above 0 and at most 1"
)


def or_null(rule: ParamRule, null: str = "null") -> ParamRule:
    """Return the rule for values that may also be None, which messages call `null`."""
    return lambda value: value is None or rule[0](value), f"{rule[1]}, or {null}"


CLASS_WEIGHT_RULE = one_of(CLASS_WEIGHTS)
TRAINING_RULES: Mapping[str, ParamRule] = {
    "lr": POSITIVE,
    "batch_size": whole_number(1),
    "optimizer": one_of(OPTIMIZERS),
    "momentum": BELOW_1,
    "beta1": BELOW_1,
    "beta2": BELOW_1,
    "weight_decay": NOT_NEGATIVE,
    "clip_norm": or_null(POSITIVE),
    "precision": one_of([precision.value for precision in Precision]),
    "schedule": one_of([schedule.value for schedule in LearningRateSchedule]),
    "ema_decay": BELOW_1,
    "patience_epochs": or_null(whole_number(1)),
    "accumulate_steps": whole_number(1),
}


def check_param_value(
    name: str, value: ParamValue, rules: Mapping[str, ParamRule] = TRAINING_RULES
) -> None:
    """Raise ValueError if the param cannot have this value."""
    holds, rule = rules[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")


MOST_EPOCHS, PATIENCE_STEPS = 200, 1000
"""The length of a training without a set length: this many epochs at most, ended when this many
steps bring nothing better. The steps are many epochs on a small table, and few on a large one."""
_FIRST_STEPS, _SMALL_BATCH = 125, 32
"""Networks are compared after this many steps at this batch size."""
_STEP_SECONDS, _FLOPS_PER_SECOND = 2e-4, 2e10
"""The fixed time of a step on one core, and the core's speed (experiments/020-long)."""


@dataclass(frozen=True)
class NetworkKey:
    """The properties that the lanes of a pack of networks have in common, a `family.PackKey`."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision
    schedule: str = LearningRateSchedule.constant.value
    """The learning-rate schedule. A constant rate needs fewer roundings per step; a pack has one
    schedule, so that no lane's numbers depend on the other lanes."""
    averages: bool = False
    """Whether the lanes keep an average of their weights; its decay may differ by lane."""

    def of_one_trial(self) -> Self:
        return self


@dataclass
class NetworkFamily(Family):
    """Networks that are trained by gradients on the one-hot view of a table."""

    export_formats: ClassVar[tuple[ExportFormat, ...]] = tuple(ExportFormat)
    losses: ClassVar[tuple[str, ...]] = (*COMMON_LOSSES, "absolute_error", "quantile")

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """Return a trial's params after a check. Raises ValueError or TypeError."""

    def checked_params(self, given: Params, training: TrainingConfig) -> TrainingParams | None:
        """Return a trial's params, filled from the settings; None if no trial can have them."""
        try:
            return self.params(fill_from_settings(given, training))
        except (TypeError, ValueError):
            return None

    def with_length(self, training: TrainingConfig, n_rows: int | None = None) -> TrainingConfig:
        if training.epochs is not None:
            return training
        steps = training.patience_steps or PATIENCE_STEPS
        return replace(training, epochs=MOST_EPOCHS, patience_steps=steps)

    def n_first_reports(self, training: TrainingConfig, n_rows: int) -> int:
        """Return 1 for a set length; else the epochs of the first `_FIRST_STEPS` steps."""
        if training.patience_steps is None:
            return 1
        return math.ceil(_FIRST_STEPS / math.ceil(n_rows / _SMALL_BATCH))

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        checked = self.checked_params(params, training)
        return None if checked is None else checked.limit_epochs(training.patience_steps, n_rows)

    def likely_reports(self, params: Params, training: TrainingConfig, n_rows: int) -> int:
        """Return the epochs that patience lasts, which a trial has at least."""
        patience = self.patience_epochs(params, training, n_rows)
        return training.n_epochs if patience is None else min(training.n_epochs, patience)

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """Return the seconds of a trial of the size tried first, with the smallest batches."""
        params, model_data = self._first_params(ends), dataset.first_fold
        n_epochs = self.likely_reports(params, training, model_data.n_train)
        training = replace(training, epochs=n_epochs)
        work = self.work(params, model_data, training)
        if work is None:
            return None
        step_seconds = _STEP_SECONDS + work.step_flops / _FLOPS_PER_SECOND
        return dataset.n_models * work.n_steps * step_seconds

    def _first_params(self, ends: Mapping[str, Iterable[ParamValue]]) -> Params:
        """Return the sizes of the portfolio's first point, as far as the space's `ends` allow."""
        point = {**next(iter(self.portfolio()), {}), "batch_size": 0}
        sizes = {
            name: [end for end in param_ends if type(end) is int]
            for name, param_ends in ends.items()
        }
        wanted = {name: value for name, value in point.items() if type(value) is int}
        return {
            name: min(max(value, min(sizes[name])), max(sizes[name]))
            for name, value in wanted.items()
            if sizes.get(name)
        }


@dataclass(frozen=True)
class WarmUp:
    """A linear rise of the learning rate from a fraction of it to all (Goyal et al., 2017)."""

    epochs: int
    first: float
    """The fraction of the learning rate at the first step."""

    def factor(self, epoch: int, share: float) -> float:
        """Return the factor of the learning rate when the fraction `share` of `epoch` is over."""
        return min(1.0, self.first + (1 - self.first) * (epoch + share) / self.epochs)
