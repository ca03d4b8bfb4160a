"""The heavy side of batch ensembles of networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from automl.data.bins import Edges
from automl.data.facts import Size
from automl.training.family import Builder, PackKey
from automl.training.mlp.family import MLPParams
from automl.training.mlp.heavy import check_weights, described, layers_for
from automl.training.model_file import check, is_size
from automl.training.network_estimator import NetworkSide
from automl.training.packs.trainer import PackTrainer
from automl.training.tabm.family import MAX_MEMBERS, TabMFamily
from automl.training.tabm.network import TabMNetwork
from automl.training.tensors import DataTensors
from automl.training.trainer import Problem


class TabMSide(NetworkSide[TabMFamily, MLPParams, PackKey]):
    """See `network.Networks`."""

    def network(
        self,
        family: TabMFamily,
        params: MLPParams,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: Callable[[], Edges] = tuple,
    ) -> TabMNetwork:
        shape, bins = layers_for(family, params, n_inputs, n_outputs, get_edges)
        return TabMNetwork(shape, params.dropout, bins, family.members)

    def network_of(
        self, plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], build: Builder | None
    ) -> TabMNetwork:
        members = plain["members"]
        check(is_size(members) and members <= MAX_MEMBERS, "no members", members)
        shape, bins = described(plain)
        return check_weights(TabMNetwork(shape, bins=bins, members=members), weights)

    def open_pack(
        self, problem: Problem, key: PackKey, data: DataTensors, *, device: str, packs_large: bool
    ) -> PackTrainer:
        raise NotImplementedError("such a family has no key")


SIDE = TabMSide()
