"""The heavy side of the built-in network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from automl.data.bins import Edges
from automl.data.facts import Size
from automl.training.family import Builder
from automl.training.mlp.encoding import Bins, bins_for
from automl.training.mlp.family import LayersFamily, MLPFamily, MLPKey, MLPParams
from automl.training.mlp.network import MLPNetwork, MLPShape
from automl.training.model_file import check, is_size
from automl.training.network_estimator import NetworkSide
from automl.training.packs.mlp_trainer import MLPPackTrainer
from automl.training.tensors import DataTensors
from automl.training.trainer import Problem

MAX_LAYERS = 10_000
"""Of a file that is read: a layer takes some kilobytes, however small its weights are."""

NetworkT = TypeVar("NetworkT", bound=MLPNetwork)


class MLPSide(NetworkSide[MLPFamily, MLPParams, MLPKey]):
    """See `network.Networks`."""

    def network(
        self,
        family: MLPFamily,
        params: MLPParams,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: Callable[[], Edges] = tuple,
    ) -> MLPNetwork:
        shape, bins = layers_for(family, params, n_inputs, n_outputs, get_edges)
        return MLPNetwork(shape, params.dropout, bins)

    def network_of(
        self, plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], build: Builder | None
    ) -> MLPNetwork:
        shape, bins = described(plain)
        return check_weights(MLPNetwork(shape, bins=bins), weights)

    def open_pack(
        self, problem: Problem, key: MLPKey, data: DataTensors, *, device: str, packs_large: bool
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


def layers_for(
    family: LayersFamily,
    params: MLPParams,
    n_inputs: Size,
    n_outputs: Size,
    get_edges: Callable[[], Edges],
) -> tuple[MLPShape, Bins | None]:
    """What a trial's params ask for."""
    assert isinstance(n_inputs, int), "of a table"
    assert isinstance(n_outputs, int), "likewise"
    bins = bins_for(params.encoding, n_inputs, get_edges)
    n_features = n_inputs if bins is None else bins.n_features
    return MLPShape(n_features, family.hidden_widths(params), n_outputs), bins


def described(plain: Mapping[str, Any]) -> tuple[MLPShape, Bins | None]:
    """What a file says."""
    bins = Bins.from_plain(plain)
    n_features = plain["n_inputs"] if bins is None else bins.n_features
    widths = plain["hidden_widths"]
    check(isinstance(widths, list | tuple) and len(widths) < MAX_LAYERS, "no layers", widths)
    sizes = [n_features, *widths, plain["n_outputs"]]
    check(all(map(is_size, sizes)), "no layers", sizes)
    return MLPShape(n_features, tuple(widths), plain["n_outputs"]), bins


def check_weights(network: NetworkT, weights: Mapping[str, torch.Tensor]) -> NetworkT:
    """The network, whose weights they are. Raises ValueError."""
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    check(found == network.weight_shapes(), "the weights are not of its layers", network.shape)
    return network


SIDE = MLPSide()
