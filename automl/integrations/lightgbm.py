"""Reports LightGBM's metrics to a trial.

Pass `callbacks=[automl.integrations.lightgbm.Report(trial, "binary_logloss")]` to `lightgbm.train`,
`lightgbm.cv` or `fit`. One file of a family, because it alone imports LightGBM.
"""

from __future__ import annotations

from lightgbm.callback import CallbackEnv

from automl.integrations.reports import LibraryReports, metrics_by_name


class LightGBMReport:
    """Reports metrics of the validation sets after each iteration.

    A metric has its own name, or, if several sets have it, a name such as `valid_0-auc`. A trial
    that was interrupted begins anew.
    """

    def __init__(self, trial: object, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)

    def __call__(self, env: CallbackEnv) -> None:
        """Report the metrics of an iteration.

        Raises what `TrialContext.report` raises, and UnfitObjectiveError if the study's direction
        is not the metric's.
        """
        results = [result[:4] for result in env.evaluation_result_list or ()]
        for data, metric, _, larger_is_better in results:
            for name in (metric, f"{data}-{metric}"):
                if name in self._reports.names[:1]:
                    self._reports.check_direction(name, larger_is_better=larger_is_better)
        self._reports.tell(env.iteration, metrics_by_name(result[:3] for result in results))


Report = LightGBMReport
"""The public name of `LightGBMReport`."""
