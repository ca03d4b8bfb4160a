"""What can be said of predictions for a table: the metrics' names, and which way they are good.

Their formulas stand in `automl/data/scoring/metrics.py`; a report of a training calls each
`val_NAME`.

What training descends: the losses that are ours, by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from automl.config.data import Task
from automl.trial import Direction

OF_CLASSES = ("cross_entropy",)
OF_VALUES = ("squared_error", "absolute_error", "quantile", "poisson")
LOSSES = ("auto", *OF_CLASSES, *OF_VALUES)
"""auto: cross_entropy of classes, squared_error of numbers."""
EVERYBODYS = ("auto", "cross_entropy", "squared_error")
"""Those that all families have."""
METRIC_OF = {"quantile": "pinball", "poisson": "poisson_deviance"}
"""A metric that stands beside the others where a study has this loss."""


@dataclass(frozen=True)
class ValueLoss:
    """That of numbers: what `loss` means of a regression, wherever it is told."""

    name: str = "squared_error"
    """One of `OF_VALUES`."""
    quantile: float = 0.5
    """With quantile: the share of targets that shall lie below what is predicted."""

    @property
    def metric(self) -> str | None:
        """Its own metric, where it has one."""
        return METRIC_OF.get(self.name)


SQUARED_ERROR = ValueLoss()


METRICS: dict[Task, tuple[str, ...]] = {
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
    Task.regression: ("loss", "rmse", "mae", "r2", "mape"),
}
"""By task; never of auto."""
LARGER_IS_BETTER = frozenset(
    ["accuracy", "balanced_accuracy", "f1", "auc", "average_precision", "r2"]
)
"""Of the other metrics small values are good."""
PREFIX = "val_"
"""Of the rows by which a trial is judged."""
EACH_EPOCH = {
    Task.classification: ("train_loss", "val_loss", "val_error"),
    Task.regression: ("train_loss", "val_loss", "val_rmse"),
}
"""What every report of a training holds; of the others the study's metric alone, for their cost."""


def metrics_of(task: Task, loss: ValueLoss) -> tuple[str, ...]:
    """All that is told of predictions where models descend this loss."""
    own = () if loss.metric is None or task is not Task.regression else (loss.metric,)
    return METRICS[task] + own


def reported_metric(task: Task) -> tuple[str, ...]:
    """What a training on a table reports; of auto what it may."""
    tasks = (Task.classification, Task.regression) if task is Task.auto else (task,)
    always = [name for each in tasks for name in EACH_EPOCH[each]]
    others = [f"{PREFIX}{name}" for each in tasks for name in METRICS[each]]
    if Task.regression in tasks:
        others += [f"{PREFIX}{name}" for name in METRIC_OF.values()]
    return tuple(dict.fromkeys((*always, *others)))


def direction_of(metric: str) -> Direction:
    """Which way a metric that a training on a table reports is good."""
    larger = metric.removeprefix(PREFIX) in LARGER_IS_BETTER
    return Direction.maximize if larger and metric.startswith(PREFIX) else Direction.minimize
