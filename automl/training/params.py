"""The params that the training of a network takes: names, defaults, checks. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from automl.config import Precision, Schedule, TrainingConfig
from automl.trial import Params, ParamValue

CLASS_WEIGHT = "class_weight"
"""A param of those families that can weigh classes."""
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
    schedule: str = Schedule.constant.value
    ema_decay: float = 0.0
    patience_epochs: int | None = None
    accumulate_steps: int = 1

    def __post_init__(self) -> None:
        for name in TRAINING_NAMES:
            check_value(name, getattr(self, name))

    @property
    def weighs_classes(self) -> bool:
        """Whether rare classes count as much as frequent ones in the loss that it descends."""
        return False


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))
_PRECISIONS = tuple(precision.value for precision in Precision)
_SCHEDULES = tuple(schedule.value for schedule in Schedule)


def with_settings(given: Params, training: TrainingConfig) -> Params:
    """A trial's params, and the study's settings where it has no param of their name."""
    return {
        "precision": training.precision.value,
        "schedule": training.schedule.value,
        "ema_decay": training.ema_decay,
        "patience_epochs": training.patience_epochs,
        "accumulate_steps": training.accumulate_steps,
        **given,
    }


Rule: TypeAlias = tuple[Callable[[ParamValue], bool], str]
"""Whether a value will do, and what it must be."""


def is_whole(least: int) -> Callable[[ParamValue], bool]:
    """A check for whole numbers."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(least: float, below: float = math.inf) -> Callable[[ParamValue], bool]:
    """A check for numbers in a range."""
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value < below
    )


CLASS_WEIGHT_RULE: Rule = (
    lambda value: value in CLASS_WEIGHTS,
    f"one of {', '.join(CLASS_WEIGHTS)}",
)
RULES: Mapping[str, Rule] = {
    "lr": (is_number(math.ulp(0.0)), "a finite number greater than 0"),
    "batch_size": (is_whole(1), "a whole number from 1"),
    "optimizer": (lambda value: value in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
    "momentum": (is_number(0, below=1), "a number from 0 to below 1"),
    "beta1": (is_number(0, below=1), "a number from 0 to below 1"),
    "beta2": (is_number(0, below=1), "a number from 0 to below 1"),
    "weight_decay": (is_number(0), "a finite number, 0 or more"),
    "clip_norm": (
        lambda value: value is None or is_number(math.ulp(0.0))(value),
        "a finite number greater than 0, or null",
    ),
    "precision": (lambda value: value in _PRECISIONS, f"one of {', '.join(_PRECISIONS)}"),
    "schedule": (lambda value: value in _SCHEDULES, f"one of {', '.join(_SCHEDULES)}"),
    "ema_decay": (is_number(0, below=1), "a number from 0 to below 1"),
    "patience_epochs": (
        lambda value: value is None or is_whole(1)(value),
        "a whole number from 1, or null",
    ),
    "accumulate_steps": (is_whole(1), "a whole number from 1"),
}


def check_value(name: str, value: ParamValue, rules: Mapping[str, Rule] = RULES) -> None:
    """Raise ValueError where this param cannot have this value."""
    holds, rule = rules[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")
