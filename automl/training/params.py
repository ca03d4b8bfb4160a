"""The params that the training of a network takes: names, defaults, checks. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from automl.trial import ParamValue

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

    def __post_init__(self) -> None:
        for name in TRAINING_NAMES:
            check_value(name, getattr(self, name))


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))


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
}


def check_value(name: str, value: ParamValue, rules: Mapping[str, Rule] = RULES) -> None:
    """Raise ValueError where this param cannot have this value."""
    holds, rule = rules[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")
