"""Hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial.

What a user's own training needs is here: `TrialContext`, `TrialPruned`, `TrialInterrupted`,
`objective`, and `load` for the models that a sweep leaves behind. `sweep` runs one from Python,
`fit` makes the best model of a table (`sklearn` has it as scikit-learn's estimators), and
`open_study` looks at a study; all raise an `AutoMLError` for what the caller can mend. With
`register_configs` a Hydra application composes our settings among its own.
`integrations` has callbacks for other libraries' training.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl import integrations
    from automl.cli.api.calls import sweep
    from automl.cli.api.configs import register_configs
    from automl.cli.api.fit import fit
    from automl.cli.api.handle import open_study
    from automl.cli.api.modules import sklearn
    from automl.errors import AutoMLError
    from automl.training.objective import TrialContext, TrialInterrupted, TrialPruned, objective
    from automl.training.predictor import load

__all__ = [
    "AutoMLError",
    "TrialContext",
    "TrialInterrupted",
    "TrialPruned",
    "fit",
    "integrations",
    "load",
    "objective",
    "open_study",
    "register_configs",
    "sklearn",
    "sweep",
]

# `automl.sklearn` is a module that stands among the other calls from Python.
__path__.append(str(Path(__file__).parent / "cli" / "api" / "modules"))

if not TYPE_CHECKING:
    # Resolved at first use: `import automl` loads no torch, and the command line answers at once.
    _HOMES = {
        "AutoMLError": "automl.errors",
        "TrialContext": "automl.training.objective",
        "TrialInterrupted": "automl.training.objective",
        "TrialPruned": "automl.training.objective",
        "fit": "automl.cli.api.fit",
        "load": "automl.training.predictor",
        "objective": "automl.training.objective",
        "open_study": "automl.cli.api.handle",
        "register_configs": "automl.cli.api.configs",
        "sweep": "automl.cli.api.calls",
    }

    def __getattr__(name: str) -> object:
        if name in ("integrations", "sklearn"):
            return importlib.import_module(f"automl.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)
