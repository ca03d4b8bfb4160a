"""Finds a user's objective by `module:function`, and says in plain words why it cannot be had."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from automl.errors import ConfigError


def resolve_objective(target: str) -> Callable[..., Any]:
    """The function that `objective.target` names, from the current folder or the Python path.

    Raises ConfigError with the module's own message where it is missing, fails on import, has no
    such function, or the function cannot be called with one argument.
    """
    module_name, _, path = target.partition(":")
    found: Any = _import(module_name, target)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(
                f"objective.target={target}: {module_name} has no {path}. "
                f"It has: {', '.join(_functions_of(found)) or 'no functions'}."
            )
        found = getattr(found, name)
    _check_callable(found, target)
    return found  # type: ignore[no-any-return]


def _import(module_name: str, target: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script does not look there by itself
    # A file written since the last look into its folder is else not seen.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"objective.target={target}: there is no module {error.name} in {os.getcwd()} or "
                "on the Python path. Start from the folder it is in, or set PYTHONPATH."
            ) from error
        raise _import_failed(module_name, target, error) from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything at its top
        raise _import_failed(module_name, target, error) from error


def _import_failed(module_name: str, target: str, error: BaseException) -> ConfigError:
    return ConfigError(
        f"objective.target={target}: importing {module_name} failed with "
        f"{type(error).__name__}: {error}. Mend it until `python -c 'import {module_name}'` works."
    )


def _check_callable(found: object, target: str) -> None:
    if not callable(found):
        raise ConfigError(
            f"objective.target={target}: this is no function but a {type(found).__name__}. "
            "Name a function that takes one automl.TrialContext."
        )
    try:
        inspect.signature(found).bind(object())
    except TypeError as error:
        raise ConfigError(
            f"objective.target={target}: {error}. An objective is called with one argument, an "
            "automl.TrialContext; hyperparameters are in its `params`."
        ) from error
    except ValueError:  # a builtin without a signature: the first trial will tell
        return


def _functions_of(found: object) -> list[str]:
    return [name for name, _ in inspect.getmembers(found, inspect.isfunction)]
