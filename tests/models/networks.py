"""Networks as a user writes them, found by `tests.models.networks:NAME`."""

from __future__ import annotations

import torch
from torch import nn


def normed(n_inputs: int, n_outputs: int, width: int = 8) -> nn.Module:
    """Buffers, a frozen layer, and a parameter under two names."""
    frozen = nn.Linear(n_inputs, width).requires_grad_(False)
    tied = nn.Linear(width, width)
    return nn.Sequential(
        frozen, nn.BatchNorm1d(width), nn.GELU(), tied, nn.Tanh(), tied, nn.Linear(width, n_outputs)
    )


class Convolution(nn.Module):
    """The columns of a table as a signal."""

    def __init__(self, n_inputs: int, n_outputs: int, *, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, channels, 3, padding=1)
        self.out = nn.Linear(channels * n_inputs, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.relu(self.conv(x.unsqueeze(1))).flatten(1))
        return out


def dropping(n_inputs: int, n_outputs: int) -> nn.Module:
    """Draws random numbers in `forward`."""
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.Dropout(0.3), nn.Linear(8, n_outputs))


class Recurrent(nn.Module):
    """An LSTM, which vmap cannot do."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 4, batch_first=True)
        self.out = nn.Linear(4, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x.unsqueeze(2))
        out: torch.Tensor = self.out(states[:, -1])
        return out


class Branching(nn.Module):
    """An `if` on data."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(n_inputs, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x)
        return out if out.sum() > 0 else 2 * out


class Secret(nn.Module):
    """A random matrix that is in no state_dict."""

    matrix: torch.Tensor

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.randn(n_inputs, 4), persistent=False)
        self.out = nn.Linear(4, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x @ self.matrix)
        return out


def loss_by_row(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(out, y, reduction="none")


def weighted(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that counts one class twice."""
    weights = torch.tensor([1.0, 2.0], dtype=out.dtype)
    return (nn.functional.cross_entropy(out, y, reduction="none") * weights[y]).mean()


def wrong_shape(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_inputs, n_outputs + 1)


def no_module(n_inputs: int, n_outputs: int) -> int:
    return 3


def any_params(n_inputs: int, n_outputs: int, **params: int) -> nn.Module:
    return nn.Linear(n_inputs, n_outputs)


def too_few(n_inputs: int) -> nn.Module:
    return nn.Linear(n_inputs, 2)


def takes_lr(n_inputs: int, n_outputs: int, lr: float) -> nn.Module:
    return nn.Linear(n_inputs, n_outputs)
