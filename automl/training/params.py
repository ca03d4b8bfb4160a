"""The params that the built-in training takes: names, defaults and checks. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from automl.config import Growth, ModelKind
from automl.trial import Params, ParamValue

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
        for entry in fields(self):
            if entry.name in _RULES:
                check_value(entry.name, getattr(self, entry.name))


@dataclass(frozen=True)
class MLPParams(TrainingParams):
    """The params of one trial of the built-in network; what the space lacks has its default."""

    depth: int = 2
    """Hidden layers; 0 is a linear model."""
    width: int = 64
    """Units per hidden layer (growth constant)."""
    dropout: float = 0.0
    """Share of each hidden layer's units that a training step leaves out."""

    @classmethod
    def of(cls, params: Params) -> MLPParams:
        """From a trial's params."""
        return cls(**params)  # type: ignore[arg-type]  # __post_init__ checks each

    def hidden_widths(self, growth: Growth) -> tuple[int, ...]:
        """Units of each hidden layer, from the input on."""
        if growth is Growth.doubling:
            return tuple(2**layer for layer in range(1, self.depth + 1))
        return (self.width,) * self.depth


@dataclass(frozen=True)
class ModuleParams(TrainingParams):
    """The params of one trial of a user's own network."""

    arguments: tuple[tuple[str, ParamValue], ...] = ()
    """What its function is called with: all params that are not of the training, by name."""

    @classmethod
    def of(cls, params: Params) -> ModuleParams:
        """From a trial's params."""
        own = {name: value for name, value in params.items() if name in TRAINING_NAMES}
        rest = tuple(sorted((n, v) for n, v in params.items() if n not in TRAINING_NAMES))
        return cls(**own, arguments=rest)  # type: ignore[arg-type]  # __post_init__ checks each


TRAINING_NAMES = tuple(entry.name for entry in fields(TrainingParams))


def params_of(kind: ModelKind, params: Params) -> MLPParams | ModuleParams:
    """A trial's params for a network of this kind. Raises ValueError or TypeError."""
    return MLPParams.of(params) if kind is ModelKind.mlp else ModuleParams.of(params)


def names(growth: Growth) -> tuple[str, ...]:
    """The params that may stand in a space: with growth doubling there is no width to choose."""
    own = ("depth", "width") if growth is Growth.constant else ("depth",)
    return (*own, *TRAINING_NAMES, "dropout")


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
    "clip_norm": (
        lambda value: value is None or _is_number(math.ulp(0.0))(value),
        "a finite number greater than 0, or null",
    ),
    "dropout": (_is_number(0, below=1), "a number from 0 to below 1"),
}


def check_value(name: str, value: ParamValue) -> None:
    """Raise ValueError where the built-in objective cannot take this value of this param."""
    holds, rule = _RULES[name]
    if not holds(value):
        raise ValueError(f"{name}={value!r}: must be {rule}.")
