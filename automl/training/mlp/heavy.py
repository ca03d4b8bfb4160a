"""The heavy side of the built-in network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from automl.training.mlp.family import MLPFamily, MLPKey, MLPParams
from automl.training.mlp.network import MLPNetwork, MLPShape
from automl.training.network_estimator import NetworkSide
from automl.training.packs.mlp_trainer import MLPPackTrainer
from automl.training.tensors import DataTensors
from automl.training.trainer import Problem


class MLPSide(NetworkSide[MLPFamily, MLPParams, MLPKey]):
    """See `network.Networks`."""

    def network(
        self, family: MLPFamily, params: MLPParams, n_inputs: int, n_outputs: int
    ) -> MLPNetwork:
        shape = MLPShape(n_inputs, params.hidden_widths(family.growth), n_outputs)
        return MLPNetwork(shape, params.dropout)

    def network_of(self, plain: Mapping[str, Any]) -> MLPNetwork:
        return MLPNetwork(MLPShape.from_plain(plain))

    def open_pack(
        self, problem: Problem, key: MLPKey, data: DataTensors, *, device: str, packs_large: bool
    ) -> MLPPackTrainer:
        return MLPPackTrainer(problem, key.batch_size, key.width, data, device=device)


SIDE = MLPSide()
