"""The heavy side of a user's own network.

A network of the user's own: any `torch.nn.Module` that a function of theirs builds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from automl.data.data_facts import Size
from automl.models.families.python.family import ModuleKey, ModuleParams, PythonFamily
from automl.models.family import NetworkBuilder
from automl.models.model_file import (
    BuilderNeededError,
    check_content,
    is_positive_size,
    parse_params,
)
from automl.models.networks.network_estimator import NetworkSide
from automl.models.networks.packs.module_trainer import MAX_WEIGHTS_ON_HOST, ModulePackTrainer
from automl.models.networks.tensors import DataTensors
from automl.models.networks.trainer import TrainingProblem
from automl.objectives.user_code import resolve_builder
from automl.trial import ParamValue

_building = threading.Lock()  # torch's global generator is seeded meanwhile


@dataclass(frozen=True)
class UserNetwork:
    """What `model.target` is called with; see `network.NetworkDescription`.

    A module draws its weights, and what it draws in `forward` (dropout, say), from torch's global
    generator; it is seeded for both. Trials in threads of one process share that generator, so what
    they draw in `forward` repeats only where they train one at a time.
    """

    target: str
    n_inputs: Size
    n_outputs: Size
    arguments: tuple[tuple[str, ParamValue], ...] = ()
    builder: Callable[..., Any] | None = None
    """What is called, where the caller has it; None: what `target` names."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> UserNetwork:
        """From `plain()`, as `best.pt` holds it."""
        arguments = tuple(plain["arguments"].items())
        sizes = (plain["n_inputs"], plain["n_outputs"])
        n_inputs, n_outputs = (tuple(s) if isinstance(s, list) else s for s in sizes)
        return cls(plain["target"], n_inputs, n_outputs, arguments)

    @property
    def n_members(self) -> int:
        return 1

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        """Raises ConfigError where the function cannot be had, TypeError where it gives no module,
        and what the function raises."""
        builder = self.builder or resolve_builder(self.target)
        with _building, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = builder(self.n_inputs, self.n_outputs, **dict(self.arguments))
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"model.target={self.target} returned a {type(module).__name__}; "
                "it must return a torch.nn.Module."
            )
        return module.to(device, dtype)

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        torch.manual_seed(seed)

    def plain(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "n_inputs": self.n_inputs,
            "n_outputs": self.n_outputs,
            "arguments": dict(self.arguments),
        }


MAX_DIMENSIONS = 16
"""Of a row, in a file that is read."""


class PythonSide(NetworkSide[PythonFamily, ModuleParams, ModuleKey]):
    """See `network.NetworkFactory`."""

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
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> UserNetwork:
        """Built with plain values, by a function that is given and not looked up."""
        for key in ("n_inputs", "n_outputs"):
            sizes = plain[key] if isinstance(plain[key], list | tuple) else (plain[key],)
            check_content(
                len(sizes) <= MAX_DIMENSIONS and all(map(is_positive_size, sizes)), key, plain[key]
            )
        check_content(isinstance(plain["target"], str), "no function", plain["target"])
        arguments = parse_params(plain["arguments"])
        if build is None:
            raise BuilderNeededError(plain["target"])
        return replace(UserNetwork.from_plain({**plain, "arguments": arguments}), builder=build)

    def open_pack(
        self,
        problem: TrainingProblem,
        key: ModuleKey,
        data: DataTensors,
        *,
        device: str,
        packs_large: bool,
    ) -> ModulePackTrainer:
        trainer = ModulePackTrainer(problem, key, data, device=device)
        if key.on_host and trainer.n_weights > MAX_WEIGHTS_ON_HOST and not packs_large:
            raise ValueError(
                f"{trainer.n_weights:,} weights; on a CPU networks of more than "
                f"{MAX_WEIGHTS_ON_HOST:,} gain nothing together (execution.pack=N packs them)"
            )
        return trainer


SIDE = PythonSide()
