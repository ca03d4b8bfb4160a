"""The light side of a user's own network: its params are what its function takes, and the
training's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from automl.config import Precision, TrainingConfig, check_target
from automl.models.networks.network_family import (
    TRAINING_NAMES,
    NetworkFamily,
    NetworkKey,
    TrainingParams,
    check_param_value,
)
from automl.trial import UNKNOWN, Params, ParamValue, ResourceRequest

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

# Of a user's network only its arguments are known here.
_LANES_ON_HOST, _LANES_ON_GPU = 16, 32


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


@dataclass(frozen=True)
class ModuleKey(NetworkKey):
    """All lanes are built with the same arguments."""

    arguments: tuple[tuple[str, ParamValue], ...] = ()

    @property
    def n_lanes(self) -> int:
        return _LANES_ON_HOST if self.on_host else _LANES_ON_GPU


@dataclass
class PythonFamily(NetworkFamily):
    """Any `torch.nn.Module` that a function of the user's builds."""

    heavy = "automl.models.families.python.heavy"

    target: str | None = None
    """`module:function`: (n_inputs, n_outputs, **params) → torch.nn.Module. Of data of your own
    (data=python) with more dimensions `n_inputs` is the shape of a row."""

    def __post_init__(self) -> None:
        check_target("model", self.target)

    @property
    def users_target(self) -> tuple[str, str]:
        return "model.target", self._target

    def param_names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        from automl.objectives.user_code import builder_params

        own, required = builder_params(self._target)
        return None if own is None else (*own, *TRAINING_NAMES), required

    def check_value(self, name: str, value: ParamValue) -> None:
        if name in TRAINING_NAMES:
            check_param_value(name, value)

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        return UNKNOWN

    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> ModuleKey | None:
        """In bfloat16 it trains alone: autocast inside torch.func was not tried. So does what
        accumulates gradients: it has batches too large for the memory, and not small networks."""
        mine = self.checked_params(params, training)
        if mine is None or mine.accumulate_steps > 1:
            return None
        assert isinstance(mine, ModuleParams)
        precision = Precision(mine.precision)
        if precision is Precision.bfloat16:
            return None
        common = (on_host, mine.optimizer, mine.batch_size, precision)
        return ModuleKey(*common, mine.schedule, mine.ema_decay > 0, arguments=mine.arguments)

    def identity(self) -> Mapping[str, Any]:
        """As it was kept when all families had the same settings."""
        return {"kind": "python", "growth": "constant", "target": self.target}

    def params(self, given: Params) -> ModuleParams:
        return ModuleParams.of(given)

    @property
    def _target(self) -> str:
        assert self.target is not None, "checked above"
        return self.target
