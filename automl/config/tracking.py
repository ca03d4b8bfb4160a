"""Settings of tracking: the store that shows results, and the artifacts that it gets.

The file is one of the family of settings files, one for each group.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class KeepCheckpoints(enum.Enum):
    """The checkpoints that become artifacts in MLflow."""

    all = "all"
    best = "best"
    none = "none"


class TrackingInside(enum.Enum):
    """The way to treat an objective that logs to an MLflow address that it sets itself."""

    follow = "follow"
    redirect = "redirect"


class TrackingStore(enum.Enum):
    """The store that shows results."""

    mlflow = "mlflow"
    none = "none"


@dataclass
class TrackingConfig:
    """The store that shows results, and the artifacts that it gets."""

    store: TrackingStore = TrackingStore.mlflow
    """mlflow, or none: the study keeps everything, and `sync` gives it to MLflow later."""
    uri: str | None = None
    """MLflow tracking URI; none: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    checkpoints: KeepCheckpoints = KeepCheckpoints.all
    """The checkpoints that become artifacts in MLflow: all (last and best), best, or none."""
    inside: TrackingInside = TrackingInside.follow
    """Values that an objective logs through MLflow go to its trial's run. If it sets an address
    itself (`mlflow.set_tracking_uri`), or is a program of another environment, they follow that
    address, or are redirected to the trial's run."""
