"""By which metric models are judged, and how a score is told. Pure."""

from __future__ import annotations

from collections.abc import Container

from automl.trial import Interval

LOSS = "loss"


def metric_of(study_metric: str, known: Container[str]) -> str:
    """The study's own metric (`val_auc` is `auc`) where it is known, else the loss."""
    own = study_metric.removeprefix("val_")
    return own if own in known else LOSS


def shown(score: Interval) -> str:
    """`0.157 (0.0854 to 0.244)`."""
    return f"{score.value:.4g} ({score.low:.4g} to {score.high:.4g})"
