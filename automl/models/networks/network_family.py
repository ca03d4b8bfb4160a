"""The light side of all families of networks, and the params of their training.

The families share `NetworkTrainer` and `packs/`, and differ in the network that a trial's params
ask for. Names, defaults and checks of the params are here; torch is not loaded.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from automl.config import ExportFormat, LearningRateSchedule, Precision, TrainingConfig
from automl.config.metrics import COMMON_LOSSES
from automl.models.family import Family
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

CLASS_WEIGHT_PARAM = "class_weight"
"""The name of the param that sets class weights, in families that can weigh classes."""
LEAST_PATIENCE = 4
"""The least number of epochs that `patience_steps` stand for; large tables have more steps in an
epoch."""
CLASS_WEIGHTS = ("none", "balanced")
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class TrainingParams:
    """The params of a trial's training, whatever its network.

    The constructor raises ValueError with the param, its value and the rule.
    """

    lr: float = 1e-3
    batch_size: int = 128
    """Rows per step; a batch larger than the training part is cut to its size."""
    optimizer: str = "adam"
    momentum: float = 0.9
    """The momentum of the optimizer sgd."""
    beta1: float = 0.9
    """The decay of the mean gradient in adam and adamw; `beta2` is the decay of its square."""
    beta2: float = 0.999
    weight_decay: float = 0.0
    """Weight decay: decoupled from the gradient in adamw (Loshchilov and Hutter, 2019), else added
    to the gradient."""
    clip_norm: float | None = None
    """The largest norm of a step's gradient over all weights; a larger gradient is scaled down to
    it (Pascanu et al., 2013). None scales nothing."""
    precision: str = Precision.float32.value
    """The precision of the training. This and the later fields are the study's settings where the
    trial has no param of the name; `TrainingConfig` says what they mean."""
    schedule: str = LearningRateSchedule.constant.value
    ema_decay: float = 0.0
    patience_epochs: int | None = None
    accumulate_steps: int = 1

    def __post_init__(self) -> None:
        for name in TRAINING_NAMES:
            check_param_value(name, getattr(self, name))

    def n_epoch_steps(self, n_rows: int) -> int:
        """Return the number of optimizer steps in an epoch of `n_rows` rows."""
        n_batches = math.ceil(n_rows / min(self.batch_size, n_rows))
        return math.ceil(n_batches / self.accumulate_steps)

    def limit_epochs(self, patience_steps: int | None, n_rows: int) -> int | None:
        """Return the epochs without a better value after which a trial ends.

        None means that the trial trains to its end. `n_rows` is the number of rows in an epoch.
        """
        if self.patience_epochs is not None or patience_steps is None:
            return self.patience_epochs
        return max(LEAST_PATIENCE, math.ceil(patience_steps / self.n_epoch_steps(n_rows)))

    @property
    def weighs_classes(self) -> bool:
        """Whether rare classes count as much as frequent ones in the training loss."""
        return False


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))
_PRECISIONS = tuple(precision.value for precision in Precision)
_SCHEDULES = tuple(schedule.value for schedule in LearningRateSchedule)


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


def whole_number_check(least: int) -> Callable[[ParamValue], bool]:
    """Return a check for whole numbers from `least`."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def number_check(least: float, below: float = math.inf) -> Callable[[ParamValue], bool]:
    """Return a check for numbers from `least` to less than `below`."""
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value < below
    )


CLASS_WEIGHT_RULE: ParamRule = (
    lambda value: value in CLASS_WEIGHTS,
    f"one of {', '.join(CLASS_WEIGHTS)}",
)
TRAINING_RULES: Mapping[str, ParamRule] = {
    "lr": (number_check(math.ulp(0.0)), "a finite number greater than 0"),
    "batch_size": (whole_number_check(1), "a whole number from 1"),
    "optimizer": (lambda value: value in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
    "momentum": (number_check(0, below=1), "a number from 0 to below 1"),
    "beta1": (number_check(0, below=1), "a number from 0 to below 1"),
    "beta2": (number_check(0, below=1), "a number from 0 to below 1"),
    "weight_decay": (number_check(0), "a finite number, 0 or more"),
    "clip_norm": (
        lambda value: value is None or number_check(math.ulp(0.0))(value),
        "a finite number greater than 0, or null",
    ),
    "precision": (lambda value: value in _PRECISIONS, f"one of {', '.join(_PRECISIONS)}"),
    "schedule": (lambda value: value in _SCHEDULES, f"one of {', '.join(_SCHEDULES)}"),
    "ema_decay": (number_check(0, below=1), "a number from 0 to below 1"),
    "patience_epochs": (
        lambda value: value is None or whole_number_check(1)(value),
        "a whole number from 1, or null",
    ),
    "accumulate_steps": (whole_number_check(1), "a whole number from 1"),
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
    losses = (*COMMON_LOSSES, "absolute_error", "quantile")

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """Return a trial's params after a check. Raises ValueError or TypeError."""

    def checked_params(self, given: Params, training: TrainingConfig) -> TrainingParams | None:
        """Return a trial's params, filled up from the study's settings.

        None stands for params that no trial can have; the trial will fail and say so.
        """
        try:
            return self.params(fill_from_settings(given, training))
        except (TypeError, ValueError):
            return None

    def with_length(self, training: TrainingConfig) -> TrainingConfig:
        if training.epochs is not None:
            return training
        steps = training.patience_steps or PATIENCE_STEPS
        return replace(training, epochs=MOST_EPOCHS, patience_steps=steps)

    def n_first_reports(self, training: TrainingConfig, n_rows: int) -> int:
        """Return 1 for a training with a set length; else a number of epochs that follows from
        `_FIRST_STEPS`."""
        if training.patience_steps is None:
            return 1
        return math.ceil(_FIRST_STEPS / math.ceil(n_rows / _SMALL_BATCH))

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        checked = self.checked_params(params, training)
        return None if checked is None else checked.limit_epochs(training.patience_steps, n_rows)

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """Return the seconds of a trial of the size that is tried first, with the smallest batches.

        The trial is as long as its patience, if it has one.
        """
        params, model_data = self._first_params(ends), dataset.first_fold
        patience = self.patience_epochs(params, training, model_data.n_train)
        if patience is not None:
            training = replace(training, epochs=min(training.n_epochs, patience))
        work = self.work(params, model_data, training)
        if work is None:
            return None
        step_seconds = _STEP_SECONDS + work.step_flops / _FLOPS_PER_SECOND
        return dataset.n_models * work.n_steps * step_seconds

    def _first_params(self, ends: Mapping[str, Iterable[ParamValue]]) -> Params:
        """Return the sizes of the portfolio's first point, as far as the space allows them.

        The space has these `ends`; the batch size is its smallest.
        """
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

    def check_space(self, names: tuple[str, ...]) -> None:
        return None
