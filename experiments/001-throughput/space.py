"""What everybody trains here: the space, the disc set, the MLP and the bare training loop.

The loop is the same for the bare loops and both peers, and does what the built-in objective of
automl does: the same network and initial weights, plain SGD, a new order for every epoch, batches
by index, the mean training loss of the epoch and a look at the whole validation part after it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import Tensor, nn


@dataclass(frozen=True)
class Params:
    """The hyperparameters of one trial."""

    depth: int
    """Hidden layers."""
    width: int
    lr: float
    batch_size: int


@dataclass(frozen=True)
class Space:
    """Bounds, both ends included; width and lr are drawn evenly in their logarithm."""

    depth: tuple[int, int]
    width: tuple[int, int]
    lr: tuple[float, float]
    batch_sizes: tuple[int, ...]

    def draw(self, generator: random.Random) -> Params:
        """One point at random."""
        low, high = self.width
        width = math.exp(generator.uniform(math.log(low - 0.5), math.log(high + 0.5)))
        return Params(
            depth=generator.randint(*self.depth),
            width=min(max(round(width), low), high),
            lr=math.exp(generator.uniform(*map(math.log, self.lr))),
            batch_size=generator.choice(self.batch_sizes),
        )


@dataclass(frozen=True)
class Data:
    """Training and validation part: x float32 (N, D), y int64 (N,)."""

    train_x: Tensor
    train_y: Tensor
    val_x: Tensor
    val_y: Tensor

    @property
    def n_classes(self) -> int:
        return int(self.train_y.max()) + 1


def disc(seed: int = 0, n_train: int = 1000, n_val: int = 500) -> Data:
    """Points even in [-1, 1]², label 1 inside the circle of half the square's area (r² = 2/π)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n_train + n_val, 2, generator=generator) * 2 - 1
    y = (x.square().sum(1) < 2 / math.pi).long()
    return Data(x[:n_train], y[:n_train], x[n_train:], y[n_train:])


def build(params: Params, data: Data, seed: int) -> nn.Sequential:
    """An MLP with ReLU. Weights as automl draws them: He, the last layer narrower, biases 0."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (data.train_x.shape[1], *(params.width,) * params.depth, data.n_classes)
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        linear = nn.Linear(n_in, n_out)
        bound = math.sqrt((6.0 if i < params.depth else 1.0) / n_in)
        with torch.no_grad():
            linear.weight.uniform_(-bound, bound, generator=generator)
            linear.bias.zero_()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def train(
    model: nn.Sequential, params: Params, data: Data, *, n_epochs: int, seed: int
) -> Iterator[dict[str, float]]:
    """Train, and yield `train_loss`, `val_loss` and `val_error` after every epoch."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=params.lr)
    for _ in range(n_epochs):
        loss_sum = torch.zeros(())
        order = torch.randperm(len(data.train_x), generator=generator)
        for start in range(0, len(order), params.batch_size):
            rows = order[start : start + params.batch_size]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data.train_x[rows]), data.train_y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss_sum += loss.detach() * len(rows)
        with torch.no_grad():
            out = model(data.val_x)
            val_loss = F.cross_entropy(out, data.val_y)
            val_error = (out.argmax(1) != data.val_y).float().mean()
        yield {
            "train_loss": loss_sum.item() / len(data.train_x),
            "val_loss": val_loss.item(),
            "val_error": val_error.item(),
        }
