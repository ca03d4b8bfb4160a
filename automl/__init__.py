"""Hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial.

What a user's own training needs is here: `TrialContext`, `TrialPruned`, `TrialInterrupted`,
`objective`, `report` where no trial is in hand, and `load` for the models that a sweep leaves
behind. `sweep` runs one from Python, `fit` makes the best model of a table (`sklearn` has it as
scikit-learn's estimators), and `open_study` looks at a study; all raise an `AutoMLError` for what
the caller can mend. With `register_configs` a Hydra application composes our settings among its
own. `integrations` has callbacks for other libraries' training.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from automl import integrations, sklearn
    from automl.api.fit_call import fit
    from automl.api.study_handle import open_study
    from automl.api.sweep_call import sweep
    from automl.cli.hydra_application import register_configs
    from automl.errors import AutoMLError, UnreadableCellWarning
    from automl.in_trial.trial_context import (
        TrialContext,
        TrialInterrupted,
        TrialPruned,
        objective,
        report,
    )
    from automl.models.predictor import load

__all__ = [
    "AutoMLError",
    "TrialContext",
    "TrialInterrupted",
    "TrialPruned",
    "UnreadableCellWarning",
    "fit",
    "integrations",
    "load",
    "objective",
    "open_study",
    "register_configs",
    "report",
    "sklearn",
    "sweep",
]

if not TYPE_CHECKING:
    # Resolved at first use: `import automl` loads no torch, and the command line answers at once.
    _HOMES = {
        "AutoMLError": "automl.errors",
        "TrialContext": "automl.in_trial.trial_context",
        "TrialInterrupted": "automl.in_trial.trial_context",
        "TrialPruned": "automl.in_trial.trial_context",
        "UnreadableCellWarning": "automl.errors",
        "fit": "automl.api.fit_call",
        "load": "automl.models.predictor",
        "objective": "automl.in_trial.trial_context",
        "open_study": "automl.api.study_handle",
        "register_configs": "automl.cli.hydra_application",
        "report": "automl.in_trial.trial_context",
        "sweep": "automl.api.sweep_call",
    }

    def __dir__() -> list[str]:
        return sorted((*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"))

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("automl-sweep")
        if name in ("integrations", "sklearn"):
            return importlib.import_module(f"automl.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)
