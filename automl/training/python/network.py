"""A network of the user's own: any `torch.nn.Module` that a function of theirs builds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from automl.data.facts import Size
from automl.training.resolve import resolve_builder
from automl.trial import ParamValue

_building = threading.Lock()  # torch's global generator is seeded meanwhile


@dataclass(frozen=True)
class UserNetwork:
    """What `model.target` is called with; see `network.Network`.

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
