"""Connects the training of other libraries to reports and pruning: one module for each library.

A module is imported when it is first named. `automl.integrations.lightning` imports Lightning, and
raises ModuleNotFoundError with the remedy if that is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl.integrations import lightgbm, lightning, sklearn, skorch, transformers, xgboost

__all__ = ["lightgbm", "lightning", "sklearn", "skorch", "transformers", "xgboost"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f"automl.integrations.{name}")
        except ModuleNotFoundError as error:
            missing = str(error.name).partition(".")[0]
            raise ModuleNotFoundError(
                f"automl.integrations.{name} needs a module that is not installed: {missing}. "
                f"Install it: pip install 'automl-sweep[{name}]'",
                name=error.name,
            ) from error
