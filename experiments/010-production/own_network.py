"""A network of a user's: what `model=python` exports in this experiment."""

from __future__ import annotations

from torch import nn


def build(n_inputs: int, n_outputs: int, width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n_inputs, width),
        nn.BatchNorm1d(width),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(width, n_outputs),
    )
