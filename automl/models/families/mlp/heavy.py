"""Builds the built-in network for trials and from model files, and opens its packs.

`network.py` has the module itself; training is in `models/networks/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from automl.models.families.mlp.family import LayersFamily, MLPKey, MLPParams
from automl.models.families.mlp.network import (
    EncodingBins,
    MLPNetwork,
    MLPShape,
    RateOutput,
    bins_for,
)
from automl.models.family import NetworkBuilder
from automl.models.model_file import check_content, is_positive_size
from automl.models.networks.network_estimator import NetworkHeavySide
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataTensors
from automl.models.networks.trainer import TrainingProblem

MAX_LAYERS = 10_000
"""A model file has fewer hidden layers: each takes some kilobytes, however small it is."""

NetworkT = TypeVar("NetworkT", bound=MLPNetwork)


class MLPHeavySide(NetworkHeavySide):
    """The `family.HeavySide` of the built-in network."""

    def network(self, problem: TrainingProblem, params: MLPParams) -> MLPNetwork:
        shape, bins = make_layers(problem, params)
        return MLPNetwork(shape, params.dropout, bins, rates_of(problem))

    def network_of(
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> MLPNetwork:
        shape, bins = read_layers(plain)
        return check_weights(
            MLPNetwork(shape, bins=bins, rates=RateOutput.from_plain(plain)), weights
        )

    def open_pack(
        self, problem: TrainingProblem, key: MLPKey, data: DataTensors, *, device: str
    ) -> MLPPackTrainer:
        return MLPPackTrainer(
            problem,
            key.batch_size,
            key.width,
            data,
            device=device,
            weighs_classes=key.weighs_classes,
            encoding=key.encoding,
        )


def make_layers(
    problem: TrainingProblem, params: MLPParams
) -> tuple[MLPShape, EncodingBins | None]:
    """Return the layers and the bins that a trial's params ask for."""
    n_inputs, n_outputs = problem.n_inputs, problem.n_outputs
    assert isinstance(problem.family, LayersFamily), "a family of layers"
    assert isinstance(n_inputs, int), "the number of a table's features"
    assert isinstance(n_outputs, int), "the number of a table's outputs"
    bins = bins_for(params.encoding, n_inputs, problem.get_edges)
    n_features = n_inputs if bins is None else bins.n_features
    return MLPShape(n_features, problem.family.hidden_widths(params), n_outputs), bins


def rates_of(problem: TrainingProblem) -> RateOutput | None:
    """Return the unit of the rates that a network learns; None: it learns no rates."""
    is_poisson = problem.training.loss_target is None and problem.training.loss == "poisson"
    return RateOutput(problem.target_mean, problem.target_scale) if is_poisson else None


def read_layers(plain: Mapping[str, Any]) -> tuple[MLPShape, EncodingBins | None]:
    """Return the layers and bins in a file. Raises ValueError for contradictions."""
    bins = EncodingBins.from_plain(plain)
    n_features = plain["n_inputs"] if bins is None else bins.n_features
    widths = plain["hidden_widths"]
    check_content(
        isinstance(widths, list | tuple) and len(widths) < MAX_LAYERS, "no layers", widths
    )
    sizes = [n_features, *widths, plain["n_outputs"]]
    check_content(all(map(is_positive_size, sizes)), "no layers", sizes)
    return MLPShape(n_features, tuple(widths), plain["n_outputs"]), bins


def check_weights(network: NetworkT, weights: Mapping[str, torch.Tensor]) -> NetworkT:
    """Return the network if the weights fit its layers. Raises ValueError otherwise."""
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    check_content(
        found == network.weight_shapes(), "the weights are not of its layers", network.shape
    )
    return network


SIDE = MLPHeavySide()
