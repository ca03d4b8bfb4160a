"""What Optuna's exception of a pruned trial means here."""

from __future__ import annotations

import sys

from automl.training.objective import TrialPruned


class PrunedWithoutReports(TrialPruned):
    """Raised for an objective that raised `optuna.TrialPruned` before it reported anything: Optuna
    takes it for a trial that is known to be bad."""


def is_optunas_pruning(error: BaseException) -> bool:
    """Whether it is `optuna.TrialPruned`. Optuna is not imported for it: who raised it has."""
    pruned = getattr(sys.modules.get("optuna.exceptions"), "TrialPruned", None)
    return isinstance(pruned, type) and isinstance(error, pruned)
