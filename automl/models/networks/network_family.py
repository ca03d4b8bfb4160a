"""The light side of what families of networks share: they train by `NetworkTrainer` and `packs/`,
and
differ in the network that a trial's params ask for.

The params that the training of a network takes: names, defaults, checks. Light: no torch.
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
"""A param of those families that can weigh classes."""
LEAST_PATIENCE = 4
"""Epochs that `patience_steps` are at least: large tables have more steps in each."""
CLASS_WEIGHTS = ("none", "balanced")
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class TrainingParams:
    """How a trial trains, whatever its network.

    Raises ValueError naming the param, its value and the rule.
    """

    lr: float = 1e-3
    batch_size: int = 128
    """Rows per step; more than the training part have are clipped to it."""
    optimizer: str = "adam"
    momentum: float = 0.9
    """For sgd."""
    beta1: float = 0.9
    """For adam and adamw, as is `beta2`."""
    beta2: float = 0.999
    weight_decay: float = 0.0
    """adamw: decoupled from the gradient (Loshchilov and Hutter, 2019); else added to it."""
    clip_norm: float | None = None
    """The largest norm of a step's gradient over all weights; larger ones are scaled down to it
    (Pascanu et al., 2013). None: they are not."""
    precision: str = Precision.float32.value
    """This and what follows are the study's settings where the trial has no such param; what they
    mean stands in `TrainingConfig`."""
    schedule: str = LearningRateSchedule.constant.value
    ema_decay: float = 0.0
    patience_epochs: int | None = None
    accumulate_steps: int = 1

    def __post_init__(self) -> None:
        for name in TRAINING_NAMES:
            check_param_value(name, getattr(self, name))

    def n_epoch_steps(self, n_rows: int) -> int:
        """Steps of the optimizer in an epoch of so many rows."""
        n_batches = math.ceil(n_rows / min(self.batch_size, n_rows))
        return math.ceil(n_batches / self.accumulate_steps)

    def limit_epochs(self, patience_steps: int | None, n_rows: int) -> int | None:
        """Epochs without a better value after which a trial ends; None: it trains to its end."""
        if self.patience_epochs is not None or patience_steps is None:
            return self.patience_epochs
        return max(LEAST_PATIENCE, math.ceil(patience_steps / self.n_epoch_steps(n_rows)))

    @property
    def weighs_classes(self) -> bool:
        """Whether rare classes count as much as frequent ones in the loss that it descends."""
        return False


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))
_PRECISIONS = tuple(precision.value for precision in Precision)
_SCHEDULES = tuple(schedule.value for schedule in LearningRateSchedule)


def fill_from_settings(given: Params, training: TrainingConfig) -> Params:
    """A trial's params, and the study's settings where it has no param of their name."""
    return {
        "precision": training.precision.value,
        "schedule": training.schedule.value,
        "ema_decay": training.ema_decay,
        "patience_epochs": training.patience_epochs,
        "accumulate_steps": training.accumulate_steps,
        **given,
    }


ParamRule: TypeAlias = tuple[Callable[[ParamValue], bool], str]
"""Whether a value will do, and what it must be."""


def whole_number_check(least: int) -> Callable[[ParamValue], bool]:
    """A check for whole numbers."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def number_check(least: float, below: float = math.inf) -> Callable[[ParamValue], bool]:
    """A check for numbers in a range."""
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
    """Raise ValueError where this param cannot have this value."""
    holds, rule = rules[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")


MOST_EPOCHS, PATIENCE_STEPS = 200, 1000
"""Of a network whose length nobody says: so many epochs at most, as long as so many steps bring
anything better. On small tables these are many epochs, on large ones few."""
_FIRST_STEPS, _SMALL_BATCH = 125, 32
"""Networks are compared from so many steps on, at batches of such a size."""
_STEP_SECONDS, _FLOPS_PER_SECOND = 2e-4, 2e10
"""Of a core: what a step takes whatever it computes; how fast it does (experiments/020-long)."""


@dataclass(frozen=True)
class NetworkKey:
    """What lanes of networks have in common; see `PackKey`."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision
    schedule: str = LearningRateSchedule.constant.value
    """Where the learning rate stays, a step is computed in fewer roundings; so that no lane's
    numbers depend on its neighbours', all have the same."""
    averages: bool = False
    """Whether there is a copy of the weights that is averaged; its decay may differ by lane."""

    def of_one_trial(self) -> Self:
        """See `PackKey`."""
        return self


@dataclass
class NetworkFamily(Family):
    """Networks that are trained by gradients on the one-hot view of a table."""

    export_formats: ClassVar[tuple[ExportFormat, ...]] = tuple(ExportFormat)
    losses = (*COMMON_LOSSES, "absolute_error", "quantile")

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""

    def checked_params(self, given: Params, training: TrainingConfig) -> TrainingParams | None:
        """Of a trial with the study's settings; None for params that no trial can have: it will
        fail and say so."""
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
        """Of a length that is said, as it is; else by steps."""
        if training.patience_steps is None:
            return 1
        return math.ceil(_FIRST_STEPS / math.ceil(n_rows / _SMALL_BATCH))

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        checked = self.checked_params(params, training)
        return None if checked is None else checked.limit_epochs(training.patience_steps, n_rows)

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """Of the size that is tried first, by the smallest batches, and where patience ends it as
        long as that lasts."""
        params, one = self._first_tried(ends), dataset.of_one_model
        patience = self.patience_epochs(params, training, one.n_train)
        if patience is not None:
            training = replace(training, epochs=min(training.n_epochs, patience))
        work = self.work(params, one, training)
        if work is None:
            return None
        step_seconds = _STEP_SECONDS + work.step_flops / _FLOPS_PER_SECOND
        return dataset.n_models * work.n_steps * step_seconds

    def _first_tried(self, ends: Mapping[str, Iterable[ParamValue]]) -> Params:
        """The sizes of the portfolio's first as far as a space with these `ends` has them, and its
        smallest batches."""
        point = {**next(iter(self.portfolio()), {}), "batch_size": 0}
        sizes = {n: [end for end in of if type(end) is int] for n, of in ends.items()}
        wanted = {name: value for name, value in point.items() if type(value) is int}
        return {
            name: min(max(value, min(sizes[name])), max(sizes[name]))
            for name, value in wanted.items()
            if sizes.get(name)
        }

    def check_space(self, names: tuple[str, ...]) -> None:
        return None
