"""An objective written for Optuna, as a session calls it: with a `TrialContext`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from automl.training.objective import TrialContext, TrialPruned, UnfitObjectiveError
from automl.training.optuna_objective.pruning import PrunedWithoutReports, is_optunas_pruning
from automl.training.optuna_objective.trial import OptunaTrial, be_optunas
from automl.training.reports import TrialReports


class OptunaObjective:
    """Calls `function(trial)` with a trial of Optuna's kind."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function
        be_optunas()

    def __call__(self, context: TrialContext) -> object:
        """What the function returns, one number of it. Raises what it raises."""
        record = cast(TrialReports, context._record)
        trial = OptunaTrial(record)
        try:
            returned = self._function(trial)
        except TrialPruned:  # of a callback of ours
            trial.tell_unasked()
            raise
        except Exception as error:
            if not is_optunas_pruning(error):
                raise
            if not record.n_reports:
                raise PrunedWithoutReports(str(error)) from error
            trial.tell_unasked()
            raise
        trial.tell_unasked()
        return _one(returned)


def _one(returned: object) -> object:
    """Optuna takes a sequence of one value, too."""
    if isinstance(returned, str) or not isinstance(returned, Sequence):
        return returned
    if len(returned) != 1:
        raise UnfitObjectiveError(
            f"the objective returned {len(returned)} values, and a sweep has one objective "
            "(study.metric): return one number, such as a weighted sum of them."
        )
    return returned[0]
