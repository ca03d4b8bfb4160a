"""Names of the metrics of predictions and of the built-in losses, and the metrics' directions.

Formulas are in `automl/data/scoring/metrics.py`. A training reports the metric NAME as `val_NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automl.config.checks import check_known_name
from automl.config.data import Task
from automl.trial import Direction

CLASS_LOSSES = ("cross_entropy",)
VALUE_LOSSES = ("squared_error", "absolute_error", "quantile", "poisson")
LOSSES = ("auto", *CLASS_LOSSES, *VALUE_LOSSES)
"""All built-in losses; auto: cross_entropy for classes, squared_error for numbers."""
COMMON_LOSSES = ("auto", "cross_entropy", "squared_error")
"""The losses that all families of models have."""
DEFAULT_QUANTILE = 0.5
METRIC_OF_LOSS = {"quantile": "pinball", "poisson": "poisson_deviance"}
"""The metric that a study with this loss has beside the others."""


@dataclass(frozen=True)
class ValueLoss:
    """The loss of predicted numbers, which models descend and are judged by."""

    name: str = "squared_error"
    """The name of the loss, one of `VALUE_LOSSES`."""
    quantile: float = DEFAULT_QUANTILE
    """The share of targets that should lie below the prediction, for the loss `quantile`."""

    @property
    def metric(self) -> str | None:
        """Return the name of the loss's own metric, or None."""
        return METRIC_OF_LOSS.get(self.name)


SQUARED_ERROR = ValueLoss()


def split_loss(text: str) -> tuple[str, float]:
    """Return the name and the share of a loss: `quantile:0.9` → ("quantile", 0.9)."""
    name, _, share = text.partition(":")
    try:
        return (name, float(share)) if name == "quantile" and share else (text, DEFAULT_QUANTILE)
    except ValueError:
        return text, DEFAULT_QUANTILE


METRICS_OF_TASK: dict[Task, tuple[str, ...]] = {
    Task.classification: (
        "loss",
        "error",
        "accuracy",
        "balanced_accuracy",
        "f1",
        "auc",
        "average_precision",
        "brier",
    ),
    Task.regression: ("loss", "rmse", "mae", "r2", "mape", "rmsle"),
}
"""Names of the metrics by task; auto has none."""
RMSLE = "rmsle"
"""The metric of numbers that only targets from 0 on have."""
LARGER_IS_BETTER = frozenset(
    ["accuracy", "balanced_accuracy", "f1", "auc", "average_precision", "r2"]
)
"""Metrics whose large values are good; small values of all others are."""
JUDGED_PREFIX = "val_"
"""Prefix of metrics on the rows by which a trial is judged."""
EPOCH_METRICS = {
    Task.classification: ("train_loss", "val_loss", "val_error"),
    Task.regression: ("train_loss", "val_loss", "val_rmse"),
}
"""The metrics in every report of a training. Of all others, only the study's metric is reported,
because they cost time."""

TRAIN_SECONDS, MODEL_BYTES, MEMORY_PEAK = "train_seconds", "model_bytes", "memory_peak"
MEASURED_METRICS = frozenset((TRAIN_SECONDS, MODEL_BYTES, MEMORY_PEAK))
"""Metrics that each trial measures itself, whatever its objective is: how long it has trained, the
size of its `best.pt`, and the most memory that it held (bytes)."""
MEASURED_ALONE = frozenset((TRAIN_SECONDS, MEMORY_PEAK))
"""Metrics that a trial can measure only if it trains in no pack."""


def prediction_metrics(task: Task, loss: ValueLoss) -> tuple[str, ...]:
    """Return the names of all metrics of predictions, for models that descend this loss."""
    own = () if loss.metric is None or task is not Task.regression else (loss.metric,)
    return METRICS_OF_TASK[task] + own


def reported_metric(task: Task, users_metric: str | None = None) -> tuple[str, ...]:
    """Return the metrics that a training on a table may report; auto: the metrics of both tasks.
    `users_metric` is the name of a function of the user's."""
    tasks = (Task.classification, Task.regression) if task is Task.auto else (task,)
    always = [name for each in tasks for name in EPOCH_METRICS[each]]
    others = [f"{JUDGED_PREFIX}{name}" for each in tasks for name in METRICS_OF_TASK[each]]
    if Task.regression in tasks:
        others += [f"{JUDGED_PREFIX}{name}" for name in METRIC_OF_LOSS.values()]
    own = [] if users_metric is None else [f"{JUDGED_PREFIX}{users_metric}"]
    return tuple(dict.fromkeys((*always, *others, *own)))


def metric_direction(metric: str) -> Direction:
    """Return the direction of a metric that a training on a table reports."""
    larger = metric.removeprefix(JUDGED_PREFIX) in LARGER_IS_BETTER
    return Direction.maximize if larger and metric.startswith(JUDGED_PREFIX) else Direction.minimize


_NAMES_ELSEWHERE = {
    "roc_auc": "auc",
    "auroc": "auc",
    "log_loss": "loss",
    "logloss": "loss",
    "acc": "accuracy",
    "pr_auc": "average_precision",
    "mse": "rmse",
    "mean_squared_error": "rmse",
    "root_mean_squared_error": "rmse",
    "mean_absolute_error": "mae",
}
"""Names that other tools have for our metrics."""


def _metric_meant(metric: str, reported: Sequence[str]) -> str:
    """Return ` Did you mean …?` for a metric's name in another tool, or without its prefix."""
    plain = metric.lower().removeprefix(JUDGED_PREFIX)
    meant = f"{JUDGED_PREFIX}{_NAMES_ELSEWHERE.get(plain, plain)}"
    return f" Did you mean {meant}?" if meant in reported else ""


def check_reported(metric: str, more_metrics: Sequence[str], reported: Sequence[str]) -> None:
    """Raise ConfigError for a metric of a study that is not `reported`. A trial measures some of
    the further ones itself."""
    meant = _metric_meant(metric, reported)
    check_known_name(f"study.metric={metric}", metric, reported, "the objective reports", meant)
    known, rule = (
        (*reported, *sorted(MEASURED_METRICS)),
        "the objective reports, or a trial measures",
    )
    for name in more_metrics:
        check_known_name(f"study.metric={name}", name, known, rule)
