"""The heavy side of a user's own network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from automl.data.facts import Size
from automl.training.family import Builder
from automl.training.model_file import NeedsBuilder, check, is_size, params_of
from automl.training.network_estimator import NetworkSide
from automl.training.packs.module_trainer import MAX_WEIGHTS_ON_HOST, ModulePackTrainer
from automl.training.python.family import ModuleKey, ModuleParams, PythonFamily
from automl.training.python.network import UserNetwork
from automl.training.tensors import DataTensors
from automl.training.trainer import Problem

MAX_DIMENSIONS = 16
"""Of a row, in a file that is read."""


class PythonSide(NetworkSide[PythonFamily, ModuleParams, ModuleKey]):
    """See `network.Networks`."""

    def network(
        self,
        family: PythonFamily,
        params: ModuleParams,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: object = None,
    ) -> UserNetwork:
        assert family.target is not None, "PythonFamily refuses to be without"
        return UserNetwork(family.target, n_inputs, n_outputs, params.arguments)

    def network_of(
        self, plain: Mapping[str, Any], weights: Mapping[str, torch.Tensor], build: Builder | None
    ) -> UserNetwork:
        """Built with plain values, by a function that is given and not looked up."""
        for key in ("n_inputs", "n_outputs"):
            sizes = plain[key] if isinstance(plain[key], list | tuple) else (plain[key],)
            check(len(sizes) <= MAX_DIMENSIONS and all(map(is_size, sizes)), key, plain[key])
        check(isinstance(plain["target"], str), "no function", plain["target"])
        arguments = params_of(plain["arguments"])
        if build is None:
            raise NeedsBuilder(plain["target"])
        return replace(UserNetwork.from_plain({**plain, "arguments": arguments}), builder=build)

    def open_pack(
        self, problem: Problem, key: ModuleKey, data: DataTensors, *, device: str, packs_large: bool
    ) -> ModulePackTrainer:
        trainer = ModulePackTrainer(problem, key, data, device=device)
        if key.on_host and trainer.n_weights > MAX_WEIGHTS_ON_HOST and not packs_large:
            raise ValueError(
                f"{trainer.n_weights:,} weights; on a CPU networks of more than "
                f"{MAX_WEIGHTS_ON_HOST:,} gain nothing together (execution.pack=N packs them)"
            )
        return trainer


SIDE = PythonSide()
