"""Where results are shown."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class KeepCheckpoints(enum.Enum):
    """Which checkpoints become artifacts in MLflow."""

    all = "all"
    best = "best"
    none = "none"


@dataclass
class TrackingConfig:
    """Where results are shown."""

    uri: str | None = None
    """MLflow tracking URI; none: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    checkpoints: KeepCheckpoints = KeepCheckpoints.all
    """Which checkpoints become artifacts in MLflow: all (last and best), best, or none."""
