"""The built-in training."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from automl.config.checks import check


class Precision(enum.Enum):
    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"


@dataclass
class TrainingConfig:
    """The built-in training."""

    epochs: int = 20
    """Passes over the training part."""
    precision: Precision = Precision.float32
    """float32, float64, or bfloat16 (float32 weights, computed in bfloat16)."""
    checkpoint_every_seconds: float = 10.0
    """`last.pt` is written at most this often, and always at the end and on interruption."""

    def __post_init__(self) -> None:
        check(self.epochs >= 1, "training.epochs", self.epochs, "must be at least 1.")
        check(
            math.isfinite(self.checkpoint_every_seconds) and self.checkpoint_every_seconds >= 0,
            "training.checkpoint_every_seconds",
            self.checkpoint_every_seconds,
            "must be 0 (every epoch) or more.",
        )
