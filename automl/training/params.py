"""The params that the built-in objective takes: names, defaults and checks. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from automl.config import Growth
from automl.trial import Params, ParamValue

OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class MLPParams:
    """The params of one trial of the built-in objective; what the space lacks has its default.

    Raises ValueError naming the param, its value and the rule.
    """

    depth: int = 2
    """Hidden layers; 0 is a linear model."""
    width: int = 64
    """Units per hidden layer (growth constant)."""
    lr: float = 1e-3
    batch_size: int = 128
    """Rows per step; more than the training part has are clipped to it."""
    optimizer: str = "adam"
    momentum: float = 0.9
    """For sgd."""
    beta1: float = 0.9
    """For adam and adamw, as is `beta2`."""
    beta2: float = 0.999
    weight_decay: float = 0.0
    """adamw: decoupled from the gradient (Loshchilov and Hutter, 2019); else added to it."""
    dropout: float = 0.0
    """Share of each hidden layer's units that a training step leaves out."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            check_value(entry.name, getattr(self, entry.name))

    @classmethod
    def of(cls, params: Params) -> MLPParams:
        """From a trial's params."""
        return cls(**params)  # type: ignore[arg-type]  # __post_init__ checks each

    def hidden_widths(self, growth: Growth) -> tuple[int, ...]:
        """Units of each hidden layer, from the input on."""
        if growth is Growth.doubling:
            return tuple(2**layer for layer in range(1, self.depth + 1))
        return (self.width,) * self.depth


def names(growth: Growth) -> tuple[str, ...]:
    """The params that may stand in a space: with growth doubling there is no width to choose."""
    everything = (entry.name for entry in fields(MLPParams))
    return tuple(name for name in everything if growth is Growth.constant or name != "width")


def _is_whole(least: int) -> Callable[[ParamValue], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(least: float, below: float = math.inf) -> Callable[[ParamValue], bool]:
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value < below
    )


_RULES: dict[str, tuple[Callable[[ParamValue], bool], str]] = {
    "depth": (_is_whole(0), "a whole number from 0"),
    "width": (_is_whole(1), "a whole number from 1"),
    "lr": (_is_number(math.ulp(0.0)), "a finite number greater than 0"),
    "batch_size": (_is_whole(1), "a whole number from 1"),
    "optimizer": (lambda value: value in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
    "momentum": (_is_number(0, below=1), "a number from 0 to below 1"),
    "beta1": (_is_number(0, below=1), "a number from 0 to below 1"),
    "beta2": (_is_number(0, below=1), "a number from 0 to below 1"),
    "weight_decay": (_is_number(0), "a finite number, 0 or more"),
    "dropout": (_is_number(0, below=1), "a number from 0 to below 1"),
}


def check_value(name: str, value: ParamValue) -> None:
    """Raise ValueError where the built-in objective cannot take this value of this param."""
    holds, rule = _RULES[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")
