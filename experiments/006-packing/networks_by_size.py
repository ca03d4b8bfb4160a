"""Networks of four families by their size, and the loop of a user who trains one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn

import automl
from tests.measure.survey.unusual_ways import Block

N_STEPS = 3
Objective = Callable[[automl.TrialContext], None]
Make = Callable[[], tuple[nn.Module, Callable[[], tuple[torch.Tensor, torch.Tensor]]]]
"""The network, and what gives a batch; both on the CPU."""


class Recurrent(nn.Module):
    def __init__(self, width: int, depth: int, n_tokens: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(n_tokens, width), nn.Linear(width, n_tokens)
        self.rnn = nn.LSTM(width, width, depth, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.rnn(self.embed(tokens))[0])
        return out


def mlp(width: int, depth: int, batch: int) -> Make:
    def make() -> Any:
        sizes = [784, *[width] * depth]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(), nn.Dropout(0.1)]
        net = nn.Sequential(*layers, nn.Linear(width, 10))
        return net, lambda: (torch.randn(batch, 784), torch.randint(10, (batch,)))

    return make


def transformer(width: int, depth: int, batch: int, length: int) -> Make:
    def make() -> Any:
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        net = nn.Sequential(nn.Embedding(1000, width), body, nn.Linear(width, 1000))
        return net, lambda: tuple(torch.randint(1000, (batch, length)) for _ in range(2))

    return make


def conv(width: int, depth: int, batch: int, size: int) -> Make:
    def make() -> Any:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for factor in (1, 2, 4):
            layers += [Block(width * factor) for _ in range(depth)]
            layers += [nn.Conv2d(width * factor, 2 * width * factor, 3, stride=2, padding=1)]
        net = nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10)
        )
        return net, lambda: (torch.randn(batch, 3, size, size), torch.randint(10, (batch,)))

    return make


def recurrent(width: int, depth: int, batch: int, length: int) -> Make:
    def make() -> Any:
        net = Recurrent(width, depth, 1000)
        return net, lambda: tuple(torch.randint(1000, (batch, length)) for _ in range(2))

    return make


OPTIMIZERS: list[Any] = [
    torch.optim.Adam,
    lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    torch.optim.AdamW,
]


def objective_of(
    make: Make,
    optimizer_of: Any,
    n_steps: int = N_STEPS,
    n_epochs: int = 1,
    loading_seconds: float = 0.0,
) -> Objective:
    """`loading_seconds`: what the user's loader takes for each batch, with the GPU idle."""

    def train(trial: automl.TrialContext) -> None:
        net, batch = make()
        net.to(trial.device)
        optimizer = optimizer_of(net.parameters())
        for epoch in range(n_epochs):
            for _ in range(n_steps):
                time.sleep(0.0 if trial.surveying else loading_seconds)
                x, y = (t.to(trial.device) for t in batch())
                optimizer.zero_grad()
                loss_of(net, x, y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            with torch.no_grad():
                x, y = (t.to(trial.device) for t in batch())
                trial.report(epoch, {"val_loss": loss_of(net, x, y).item()})

    return train


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = net(x)
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
