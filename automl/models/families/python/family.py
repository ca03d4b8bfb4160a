"""Defines the light side of a user's network; its params are its function's and the training's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from automl.config import Precision, TrainingConfig, check_function_target
from automl.errors import ConfigError
from automl.in_trial.user_code import resolve_builder
from automl.models.networks.network_family import (
    TRAINING_NAMES,
    NetworkFamily,
    NetworkKey,
    TrainingParams,
    check_param_value,
)
from automl.trial import UNKNOWN_REQUEST, Params, ParamValue, ResourceRequest

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

# The size of a user's network is unknown here, so the numbers of lanes are fixed.
_LANES_ON_HOST, _LANES_ON_GPU = 16, 128  # measured: experiments/002-packs


@dataclass(frozen=True)
class ModuleParams(TrainingParams):
    """The params of one trial of a user's own network."""

    arguments: tuple[tuple[str, ParamValue], ...] = ()
    """Arguments of the user's function: all params that are not the training's, by name."""

    @classmethod
    def from_params(cls, params: Params) -> ModuleParams:
        """Read the params of a trial."""
        own = {name: value for name, value in params.items() if name in TRAINING_NAMES}
        rest = tuple(sorted((n, v) for n, v in params.items() if n not in TRAINING_NAMES))
        return cls(**own, arguments=rest)  # type: ignore[arg-type]  # __post_init__ checks each


@dataclass(frozen=True)
class ModuleKey(NetworkKey):
    """Key of trials that can train together; their networks have the same arguments."""

    arguments: tuple[tuple[str, ParamValue], ...] = ()

    @property
    def n_lanes(self) -> int:
        return _LANES_ON_HOST if self.on_host else _LANES_ON_GPU


@dataclass
class PythonFamily(NetworkFamily):
    """Any `torch.nn.Module` that a function of the user builds."""

    heavy = "automl.models.families.python.heavy"

    target: str | None = None
    """`module:function`: (n_inputs, n_outputs, **params) → torch.nn.Module. For data of your own
    (data=python) with more dimensions, `n_inputs` is the shape of a row."""

    def __post_init__(self) -> None:
        check_function_target("model", self.target)

    @property
    def users_target(self) -> tuple[str, str]:
        return "model.target", self._target

    def param_names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        own, required = _builder_params(self._target)
        return None if own is None else (*own, *TRAINING_NAMES), required

    def check_value(self, name: str, value: ParamValue) -> None:
        if name in TRAINING_NAMES:
            check_param_value(name, value)

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        return UNKNOWN_REQUEST

    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> ModuleKey | None:
        """Return the key of a trial; None: it trains alone.

        Trials in bfloat16 train alone, because autocast inside torch.func was not tried. Trials
        that accumulate gradients do, because they have batches too large for the memory, and no
        small networks.
        """
        checked = self.checked_params(params, training)
        if checked is None or checked.accumulate_steps > 1:
            return None
        assert isinstance(checked, ModuleParams)
        precision = Precision(checked.precision)
        if precision is Precision.bfloat16:
            return None
        common = (on_host, checked.optimizer, checked.batch_size, precision)
        return ModuleKey(
            *common, checked.schedule, checked.ema_decay > 0, arguments=checked.arguments
        )

    def identity(self) -> Mapping[str, Any]:
        """Return the settings in the form of the time when all families had the same ones."""
        return {"kind": "python", "growth": "constant", "target": self.target}

    def params(self, given: Params) -> ModuleParams:
        return ModuleParams.from_params(given)

    @property
    def _target(self) -> str:
        assert self.target is not None, "checked above"
        return self.target


def _builder_params(target: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the params that `model.target` takes (None: any) and of required ones.

    Raises ConfigError under the conditions of `resolve_objective`, and if the target does not take
    `n_inputs, n_outputs` first, or takes a param that belongs to the training.
    """
    try:
        parameters = inspect.signature(resolve_builder(target)).parameters.values()
    except ValueError:  # a builtin without a signature: the first trial will tell
        return None, ()
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(by_place) < 2 and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(
            f"model.target={target}: it is called as build(n_inputs, n_outputs, **params), and "
            f"takes only ({', '.join(map(str, parameters))})."
        )
    named = [
        p
        for p in parameters
        if p not in by_place[:2] and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if taken := [p.name for p in named if p.name in TRAINING_NAMES]:
        raise ConfigError(
            f"model.target={target}: {taken[0]} is a param of the training and not given to the "
            f"network; these are: {', '.join(TRAINING_NAMES)}. Give yours another name."
        )
    required = tuple(p.name for p in named if p.default is p.empty)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None, required
    return tuple(p.name for p in named), required
