"""The seven networks of Shi et al. (2016), written with torch.nn, and mini-batches for them.

Layers as in the authors' public benchmark, github.com/hclhkbu/dlbench, mostly its Torch scripts:
`synthetic/experiments/torch` for those on synthetic data (S, and ResNet-50), `tools/torch/Models`
and `tools/torch/rnn` for those on real data (R, ResNet-56 and the LSTM). Where its five tools
differ, the docstring says which is followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import Tensor, nn

_WORDS, _WORDS_IN_A_ROW, _LSTM_UNITS = 10_000, 32, 256


@dataclass(frozen=True)
class Batch:
    """A mini-batch on one device."""

    x: Tensor
    y: Tensor

    @property
    def n_bytes(self) -> int:
        return self.x.nbytes + self.y.nbytes

    def to(self, device: str) -> Batch:
        return Batch(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Network:
    """One row of the table."""

    name: str
    batch_size: int
    build: Callable[[], nn.Module]
    row: tuple[int, ...]
    """Shape of one row of the input; empty: a row of words."""
    n_classes: int

    def n_parameters(self) -> int:
        """Trained numbers. Counted on torch's meta device: nothing is allocated."""
        with torch.device("meta"):
            return sum(p.numel() for p in self.build().parameters())

    def batch(self, n_rows: int) -> Batch:
        """Random inputs and classes in the host's memory; the same at each call."""
        generator = torch.Generator().manual_seed(0)
        if not self.row:
            shape = (n_rows, _WORDS_IN_A_ROW)
            x = torch.randint(self.n_classes, shape, generator=generator)
            y = torch.randint(self.n_classes, (math.prod(shape),), generator=generator)
        else:
            x = torch.randn((n_rows, *self.row), generator=generator)
            y = torch.randint(self.n_classes, (n_rows,), generator=generator)
        return Batch(x, y)


def fully_connected(widths: Sequence[int]) -> nn.Sequential:
    """Sigmoids between linear layers."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


def alexnet_s() -> nn.Sequential:
    """Krizhevsky's second network with the first one's 96 to 384 channels; no dropout, as there."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, 1000),
    )


def alexnet_r() -> nn.Sequential:
    """For images of 32 by 32, without local response normalisation."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.MaxPool2d(3, 2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(64 * 3 * 3, 10),
    )


def convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Sequential:
    """With batch normalisation, hence without a bias."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(n_out)
    )


class Bottleneck(nn.Module):
    """A block of ResNet-50 as in fb.resnet.torch: the 3 by 3 convolution strides."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = 4 * width
        self.residual = nn.Sequential(
            convolution(n_in, width, 1),
            nn.ReLU(inplace=True),
            convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            convolution(width, n_out, 1),
        )
        changes = n_in != n_out or stride > 1
        self.shortcut = convolution(n_in, n_out, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x), inplace=True)


def resnet_50() -> nn.Sequential:
    blocks: list[nn.Module] = []
    n_in = 64
    for width, n_blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(n_blocks):
            blocks.append(Bottleneck(n_in, width, first_stride if i == 0 else 1))
            n_in = 4 * width
    return nn.Sequential(
        convolution(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(n_in, 1000),
    )


class Basic(nn.Module):
    """A block of ResNet-56: the shortcut drops pixels and pads channels, and no ReLU follows."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.stride, self.n_more = stride, n_out - n_in
        self.residual = nn.Sequential(
            convolution(n_in, n_out, 3, stride),
            nn.ReLU(inplace=True),
            convolution(n_out, n_out, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.n_more))
        out: Tensor = self.residual(x) + shortcut
        return out


def resnet_56() -> nn.Sequential:
    """Nine blocks of each width. Convolutions have no bias, as in the benchmark's TensorFlow."""
    blocks: list[nn.Module] = []
    n_in = 16
    for width in (16, 32, 64):
        for _ in range(9):
            blocks.append(Basic(n_in, width, 1 if n_in == width else 2))
            n_in = width
    return nn.Sequential(
        convolution(3, 16, 3),
        nn.ReLU(inplace=True),
        *blocks,
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class LSTM(nn.Module):
    """Two layers of 256 units on rows of 32 words; gives the odds of each next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, _LSTM_UNITS)
        self.lstm = nn.LSTM(_LSTM_UNITS, _LSTM_UNITS, num_layers=2, batch_first=True)
        self.out = nn.Linear(_LSTM_UNITS, _WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """(B, 32) → (B · 32, words)."""
        units, _ = self.lstm(self.embedding(words))
        out: Tensor = self.out(units.flatten(0, 1))
        return out


NETWORKS = (
    Network(
        "FCN-S", 64, lambda: fully_connected((26752, 2048, 2048, 2048, 26752)), (26752,), 26752
    ),
    Network("AlexNet-S", 16, alexnet_s, (3, 224, 224), 1000),
    Network("ResNet-50", 16, resnet_50, (3, 224, 224), 1000),
    Network("FCN-R", 1024, lambda: fully_connected((784, 2048, 4096, 1024, 10)), (784,), 10),
    Network("AlexNet-R", 1024, alexnet_r, (3, 32, 32), 10),
    Network("ResNet-56", 128, resnet_56, (3, 32, 32), 10),
    Network("LSTM", 128, LSTM, (), _WORDS),
)


def network(name: str) -> Network:
    """By its name in the table. Raises ValueError for another."""
    for found in NETWORKS:
        if found.name == name:
            return found
    names = ", ".join(n.name for n in NETWORKS)
    raise ValueError(f"network {name!r}: there are {names}.")
