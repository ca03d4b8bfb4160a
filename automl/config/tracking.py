"""Where results are shown."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class KeepCheckpoints(enum.Enum):
    """Which checkpoints become artifacts in MLflow."""

    all = "all"
    best = "best"
    none = "none"


class TrackingInside(enum.Enum):
    """Where goes what an objective logs to an MLflow address that it sets itself."""

    follow = "follow"
    redirect = "redirect"


class TrackingStore(enum.Enum):
    """What shows results."""

    mlflow = "mlflow"
    none = "none"


@dataclass
class TrackingConfig:
    """Where results are shown."""

    store: TrackingStore = TrackingStore.mlflow
    """mlflow, or none: the study keeps everything, and `sync` gives it to MLflow later."""
    uri: str | None = None
    """MLflow tracking URI; none: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    checkpoints: KeepCheckpoints = KeepCheckpoints.all
    """Which checkpoints become artifacts in MLflow: all (last and best), best, or none."""
    inside: TrackingInside = TrackingInside.follow
    """What an objective logs through MLflow goes to its trial's run; where it sets an address by
    itself (`mlflow.set_tracking_uri`), or is a program of another environment, that is followed, or
    redirected to the trial's run."""
