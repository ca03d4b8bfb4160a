"""What the families of networks share: they train by `Trainer` and `packs/`, and differ in the
network that a trial's params ask for. Light side; torch is imported where it is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from automl.config import Precision, TrainingConfig
from automl.training.family import Family
from automl.training.params import TrainingParams
from automl.trial import Params

if TYPE_CHECKING:
    from automl.data.dataset import Dataset
    from automl.training.network import Network, NetworkModel
    from automl.training.network_estimator import NetworkEstimator
    from automl.training.packs.trainer import PackTrainer
    from automl.training.tensors import DataTensors
    from automl.training.trainer import Problem


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

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""

    @abstractmethod
    def network(self, params: TrainingParams, n_inputs: int, n_outputs: int) -> Network:
        """The network that they ask for."""

    @classmethod
    @abstractmethod
    def network_of(cls, plain: Mapping[str, Any]) -> Network:
        """The network of a `best.pt`, from what its `plain` gave."""

    @abstractmethod
    def open_pack(
        self, problem: Problem, key: Any, data: DataTensors, *, device: str, packs_large: bool
    ) -> PackTrainer:
        """A pack without trials yet. Raises whatever says that such trials must train alone."""

    def checked_params(self, given: Params) -> TrainingParams | None:
        """None for params that no trial can have: it will fail and say so."""
        try:
            return self.params(given)
        except (TypeError, ValueError):
            return None

    def check_space(self, names: tuple[str, ...]) -> None:
        return None

    def open_estimator(
        self, dataset: Dataset, training: TrainingConfig, *, packs_large: bool = False
    ) -> NetworkEstimator:
        from automl.training.network_estimator import NetworkEstimator

        return NetworkEstimator(dataset, self, training, packs_large=packs_large)

    @classmethod
    def read_model(cls, state: Mapping[str, Any]) -> NetworkModel:
        from automl.training.network import NetworkModel

        return NetworkModel(cls.network_of(state["model"]), state["weights"])
