"""Two networks as a user writes them, for `modules.py`."""

from __future__ import annotations

from torch import Tensor, nn


def mlp(n_inputs: int, n_outputs: int, width: int) -> nn.Module:
    """Three hidden layers with batch normalisation."""
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.GELU()]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))


class Convolutions(nn.Module):
    """Two convolutions on images of 8 by 8."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * n_inputs // 4, n_outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.view(-1, 1, 8, 8))
        return out
