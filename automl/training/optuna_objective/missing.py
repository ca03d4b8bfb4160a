"""What of Optuna cannot be had in a trial, said with the rule and the remedy."""

from __future__ import annotations


class NotInATrialError(AttributeError):
    """Raised when an objective looks for what its process does not have.

    An AttributeError, so that `hasattr` says that it is not there.
    """


_OTHERS = "a trial has no part in the others' results; decide by its own reports"
_STORAGE = (
    'for Lightning under DDP give automl.integrations.lightning.Report(trial, "val_loss") in place '
    "of Optuna's callback"
)
_REMEDIES = {
    "trial.storage": _STORAGE,
    "trial._trial_id": _STORAGE,
    "trial.study._storage": _STORAGE,
    "pickling trial": _STORAGE,
    "trial.study.best_params": _OTHERS,
    "trial.study.best_trial": _OTHERS,
    "trial.study.best_value": _OTHERS,
    "trial.study.get_trials": _OTHERS,
    "trial.study.trials": _OTHERS,
    "trial.study.stop": "the end is set by study.n_trials and study.timeout_seconds",
    "trial.study.optimize": "the sweep calls the objective",
    "trial.study.enqueue_trial": "what is tried first is set by study.enqueue",
    "trial.study.set_user_attr": "note it with trial.set_user_attr",
    "trial.set_constraint": "raise optuna.TrialPruned for what must not be",
    "trial.constraints": "raise optuna.TrialPruned for what must not be",
}


def not_in_a_trial(name: str, there: str) -> NotInATrialError:
    """For `name` (`trial.storage`), in place of which there is what is `there`."""
    remedy = _REMEDIES.get(name)
    return NotInATrialError(
        f"{name}: a trial trains in a process of its own, away from Optuna's study, and has "
        f"{there}{'.' if remedy is None else f'; {remedy}.'}"
    )
