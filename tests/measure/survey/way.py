"""The register of the ways to write a loop, with the network and the data that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn

import automl

Objective = Callable[[automl.TrialContext], float | None]
WAYS: dict[str, tuple[Objective, float]] = {}
"""The objectives by name, each with the error that its survey may have."""
BATCH, N_INPUTS, WIDTH = 64, 64, 256
X = torch.rand(4 * BATCH, N_INPUTS)
Y = torch.arange(4 * BATCH) % 10
IMAGES = torch.rand(4 * 16, 3, 16, 16)
MLP, TRANSFORMER, CONV, RNN = 0.04, 0.02, 0.15, 0.25


def way(error: float = MLP) -> Callable[[Objective], Objective]:
    def add(objective: Objective) -> Objective:
        WAYS[objective.__name__] = (objective, error)
        return objective

    return add


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(N_INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def step(net: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for rows in torch.arange(len(X)).split(BATCH):  # type: ignore[no-untyped-call]
        yield X[rows], Y[rows]
