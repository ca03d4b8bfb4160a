"""XGBoost: `callbacks=[automl.integrations.xgboost.XGBoostReport(trial, "logloss")]`, in
`xgboost.train`,
`xgboost.cv` and `XGBClassifier(…)`."""

from __future__ import annotations

from typing import Any

from xgboost.callback import TrainingCallback

from automl.integrations.reports import LibraryReports, metrics_by_name


class XGBoostReport(TrainingCallback):
    """Reports metrics of the validation sets after each iteration: by the metric's name, or where
    several sets have it as `validation_0-logloss`. A trial that was interrupted begins anew.
    """

    def __init__(self, trial: object, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop, which it never asks for. Raises what `TrialContext.report` raises."""
        results = [
            (data, metric, _last(values))
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        ]
        self._reports.tell(epoch, metrics_by_name(results))
        return False


def _last(values: Any) -> float:
    """Of `xgboost.cv`, whose values are pairs of mean and deviation, the mean."""
    newest = values[-1]
    return float(newest[0] if isinstance(newest, tuple) else newest)


Report = XGBoostReport
"""The name by which users know the class."""
