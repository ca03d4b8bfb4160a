"""The light side of what families of networks share: they train by `Trainer` and `packs/`, and
differ in the network that a trial's params ask for.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from automl.config import ExportFormat, Precision
from automl.training.family import Family
from automl.training.params import TrainingParams
from automl.trial import Params


@dataclass(frozen=True)
class NetworkKey:
    """What lanes of networks have in common; see `PackKey`."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision


@dataclass
class NetworkFamily(Family):
    """Networks that are trained by gradients on the one-hot view of a table."""

    export_formats: ClassVar[tuple[ExportFormat, ...]] = tuple(ExportFormat)

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""

    def checked_params(self, given: Params) -> TrainingParams | None:
        """None for params that no trial can have: it will fail and say so."""
        try:
            return self.params(given)
        except (TypeError, ValueError):
            return None

    def check_space(self, names: tuple[str, ...]) -> None:
        return None
