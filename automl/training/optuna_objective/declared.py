"""What is known of an objective written for Optuna before its first trial. No torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from automl.errors import ConfigError
from automl.training.declaration import Declaration
from automl.training.objective import declared_by


def declaration_of_optunas(function: Callable[..., Any], what: str) -> Declaration:
    """It may ask for any params, and needs none to be written.

    Raises ConfigError, with `what` as the setting that names the function, where it cannot be
    called with a trial alone.
    """
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise ConfigError(
            f"{what}: {error}. Optuna calls an objective with one argument, the trial; bind others "
            "in your module: objective = functools.partial(train, data=…)."
        ) from error
    except ValueError:  # a builtin without a signature: the first trial will tell
        pass
    return Declaration(None, (), declared_by(function).metrics)
