"""The light side of what families of networks share: they train by `Trainer` and `packs/`, and
differ in the network that a trial's params ask for.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from automl.config import ExportFormat, Precision, Schedule, TrainingConfig
from automl.config.losses import EVERYBODYS
from automl.training.family import Family
from automl.training.params import TrainingParams, with_settings
from automl.trial import Params


@dataclass(frozen=True)
class NetworkKey:
    """What lanes of networks have in common; see `PackKey`."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision
    schedule: str = Schedule.constant.value
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
    losses = (*EVERYBODYS, "absolute_error", "quantile")

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""

    def checked_params(self, given: Params, training: TrainingConfig) -> TrainingParams | None:
        """Of a trial with the study's settings; None for params that no trial can have: it will
        fail and say so."""
        try:
            return self.params(with_settings(given, training))
        except (TypeError, ValueError):
            return None

    def check_space(self, names: tuple[str, ...]) -> None:
        return None
