"""Hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial.

What a user's own training needs is here: `TrialContext`, `TrialPruned`, `TrialInterrupted`,
`objective`, and `load` for the models that a sweep leaves behind.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl.training.objective import TrialContext, TrialInterrupted, TrialPruned, objective
    from automl.training.predictor import load

__all__ = ["TrialContext", "TrialInterrupted", "TrialPruned", "load", "objective"]

if not TYPE_CHECKING:
    # Resolved at first use: `import automl` loads no torch, and the command line answers at once.
    _HOMES = {
        "TrialContext": "automl.training.objective",
        "TrialInterrupted": "automl.training.objective",
        "TrialPruned": "automl.training.objective",
        "load": "automl.training.predictor",
        "objective": "automl.training.objective",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)
