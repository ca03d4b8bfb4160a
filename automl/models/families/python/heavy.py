"""Builds networks with a function of the user, for trials and from files, and opens their packs.

The network is any `torch.nn.Module`; training is in `models/networks/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from automl.data.dataset import Size
from automl.in_trial.user_code import resolve_builder
from automl.models.families.python.family import ModuleKey, ModuleParams, PythonFamily
from automl.models.family import NetworkBuilder
from automl.models.model_file import (
    BuilderNeededError,
    check_content,
    is_positive_size,
    parse_params,
)
from automl.models.networks.network_estimator import NetworkHeavySide
from automl.models.networks.packs.module_trainer import ModulePackTrainer
from automl.models.networks.tensors import DataTensors
from automl.models.networks.trainer import TrainingProblem
from automl.trial import ParamValue

_generator_lock = threading.Lock()  # held while torch's global generator is seeded and used


@dataclass(frozen=True)
class UserNetwork:
    """A `network.NetworkDescription` of a user's network: its function and the arguments.

    A module draws its weights and what it needs in `forward` (dropout, for example) from torch's
    global generator, which is seeded for both. Trials in threads of one process share the
    generator, so draws in `forward` repeat only if the trials train one at a time.
    """

    target: str
    n_inputs: Size
    n_outputs: Size
    arguments: tuple[tuple[str, ParamValue], ...] = ()
    builder: Callable[..., Any] | None = None
    """Function that builds the network; None: the function that `target` names."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> UserNetwork:
        """Read what `plain` returned, in the form of `best.pt`."""
        arguments = tuple(plain["arguments"].items())
        sizes = (plain["n_inputs"], plain["n_outputs"])
        n_inputs, n_outputs = (tuple(s) if isinstance(s, list) else s for s in sizes)
        return cls(plain["target"], n_inputs, n_outputs, arguments)

    @property
    def n_members(self) -> int:
        return 1

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        """Build the module.

        Raises ConfigError if the function cannot be imported, TypeError if it returns no module,
        and any exception of the function.
        """
        builder = self.builder or resolve_builder(self.target)
        with _generator_lock, torch.random.fork_rng(devices=[]):
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
"""Largest number of dimensions of a row in a model file."""


class PythonHeavySide(NetworkHeavySide):
    """The `family.HeavySide` of a user's network."""

    def network(self, problem: TrainingProblem, params: ModuleParams) -> UserNetwork:
        assert isinstance(problem.family, PythonFamily), "the family of this module"
        assert problem.family.target is not None, "PythonFamily refuses to have none"
        return UserNetwork(
            problem.family.target, problem.n_inputs, problem.n_outputs, params.arguments
        )

    def network_of(
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> UserNetwork:
        """Return a description that builds with the caller's function, never with the file's."""
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
        self, problem: TrainingProblem, key: ModuleKey, data: DataTensors, *, device: str
    ) -> ModulePackTrainer:
        return ModulePackTrainer(problem, key, data, device=device)


SIDE = PythonHeavySide()
