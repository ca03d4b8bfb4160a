"""The heavy side of the built-in network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch

from automl.data.bins import Edges
from automl.data.facts import Size
from automl.training.family import Builder
from automl.training.mlp.encoding import Bins, bins_for
from automl.training.mlp.family import MLPFamily, MLPKey, MLPParams
from automl.training.mlp.network import MLPNetwork, MLPShape
from automl.training.model_file import check, is_size
from automl.training.network_estimator import NetworkSide
from automl.training.packs.mlp_trainer import MLPPackTrainer
from automl.training.tensors import DataTensors
from automl.training.trainer import Problem

MAX_LAYERS = 10_000
"""Of a file that is read: a layer takes some kilobytes, however small its weights are."""


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
        assert isinstance(n_inputs, int), "of a table"
        assert isinstance(n_outputs, int), "likewise"
        bins = bins_for(params.encoding, n_inputs, get_edges)
        n_features = n_inputs if bins is None else bins.n_features
        shape = MLPShape(n_features, params.hidden_widths(family.growth), n_outputs)
        return MLPNetwork(shape, params.dropout, bins)

    def network_of(
        self, plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], build: Builder | None
    ) -> MLPNetwork:
        bins = Bins.from_plain(plain)
        return MLPNetwork(_shape(plain, weights, bins), bins=bins)

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


def _shape(
    plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], bins: Bins | None
) -> MLPShape:
    """The shape that a file says; its weights have it."""
    n_features = plain["n_inputs"] if bins is None else bins.n_features
    widths = plain["hidden_widths"]
    check(isinstance(widths, list | tuple) and len(widths) < MAX_LAYERS, "no layers", widths)
    sizes = [n_features, *widths, plain["n_outputs"]]
    check(all(map(is_size, sizes)), "no layers", sizes)
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        shapes |= {f"layers.{i}.weight": (n_out, n_in), f"layers.{i}.bias": (n_out,)}
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    check(found == shapes, "the weights are not of its layers", sizes)
    return MLPShape(n_features, tuple(widths), plain["n_outputs"])


SIDE = MLPSide()
