"""Reports XGBoost's metrics to a trial.

Pass `callbacks=[automl.integrations.xgboost.Report(trial, "logloss")]` to `xgboost.train`,
`xgboost.cv` or `XGBClassifier(…)`. One file of a family, because it alone imports XGBoost.
"""

from __future__ import annotations

from typing import Any

from xgboost.callback import TrainingCallback

from automl.integrations.reports import LibraryReports, metrics_by_name


class XGBoostReport(TrainingCallback):
    """Reports metrics of the validation sets after each iteration.

    A metric has its own name, or, if several sets have it, a name such as `validation_0-logloss`. A
    trial that was interrupted begins anew.
    """

    def __init__(self, trial: object, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report the metrics of an iteration; return False, so that training continues.

        Raises what `TrialContext.report` raises.
        """
        results = [
            (data, metric, _last(values))
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        ]
        self._reports.tell(epoch, metrics_by_name(results))
        return False


def _last(values: Any) -> float:
    """Return the newest value; `xgboost.cv` has pairs of mean and deviation, of which the mean."""
    newest = values[-1]
    return float(newest[0] if isinstance(newest, tuple) else newest)


Report = XGBoostReport
"""The public name of `XGBoostReport`."""
