"""Finds what a user names by `module:function`, and says in plain words why it cannot be had."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from automl.errors import ConfigError
from automl.training.params import TRAINING_NAMES

_argv_lock = threading.RLock()
"""Several threads look networks up; a module may have another looked up while it is imported."""


def resolve_objective(target: str) -> Callable[..., Any]:
    """The function that `objective.target` names, from the current folder or the Python path.

    Raises ConfigError with the module's own message where it is missing, fails on import, has no
    such function, or the function cannot be called with one argument.
    """
    found = _resolve("objective.target", target)
    if not callable(found):
        raise _no_function("objective.target", target, found, "one automl.TrialContext")
    try:
        inspect.signature(found).bind(object())
    except TypeError as error:
        raise ConfigError(
            f"objective.target={target}: {error}. An objective is called with one argument, an "
            "automl.TrialContext; hyperparameters are in its `params`."
        ) from error
    except ValueError:  # a builtin without a signature: the first trial will tell
        pass
    return found  # type: ignore[no-any-return]


def resolve_builder(target: str) -> Callable[..., Any]:
    """The function, or class, that `model.target` names. Raises ConfigError as above."""
    found = _resolve("model.target", target)
    if not callable(found):
        raise _no_function("model.target", target, found, "n_inputs, n_outputs and params")
    return found  # type: ignore[no-any-return]


def builder_params(target: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Names of the params that `model.target` takes (None: any), and of those it must be given.

    Raises ConfigError as above, and where it does not take `n_inputs, n_outputs` first, or takes a
    param that belongs to the training.
    """
    try:
        parameters = inspect.signature(resolve_builder(target)).parameters.values()
    except ValueError:  # a builtin without a signature: the first trial will tell
        return None, ()
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(by_place) < 2 and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(
            f"model.target={target}: it is called as build(n_inputs, n_outputs, **params), and "
            f"takes only ({', '.join(map(str, parameters))})."
        )
    named = [
        p
        for p in parameters
        if p not in by_place[:2] and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if taken := [p.name for p in named if p.name in TRAINING_NAMES]:
        raise ConfigError(
            f"model.target={target}: {taken[0]} is a param of the training and not given to the "
            f"network; these are: {', '.join(TRAINING_NAMES)}. Give yours another name."
        )
    required = tuple(p.name for p in named if p.default is p.empty)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None, required
    return tuple(p.name for p in named), required


def _resolve(key: str, target: str) -> Any:
    module_name, _, path = target.partition(":")
    found: Any = _import(key, module_name, target)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(
                f"{key}={target}: {module_name} has no {path}. "
                f"It has: {', '.join(_functions_of(found)) or 'no functions'}."
            )
        found = getattr(found, name)
    return found


def _import(key: str, module_name: str, target: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script does not look there by itself
    if module_name not in sys.modules:  # a network is looked up for every trial
        # A file written since the last look into its folder is else not seen.
        importlib.invalidate_caches()
    try:
        with _argv_of(module_name):
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{key}={target}: there is no module {error.name} in {os.getcwd()} or "
                "on the Python path. Start from the folder it is in, or set PYTHONPATH."
            ) from error
        raise _import_failed(key, module_name, target, error) from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything at its top
        raise _import_failed(key, module_name, target, error) from error


@contextmanager
def _argv_of(module_name: str) -> Iterator[None]:
    """A script that parses arguments as it is imported sees none, rather than the sweep's."""
    with _argv_lock:
        before = sys.argv
        sys.argv = [module_name]
        try:
            yield
        finally:
            sys.argv = before


def _import_failed(key: str, module_name: str, target: str, error: BaseException) -> ConfigError:
    return ConfigError(
        f"{key}={target}: importing {module_name} failed with "
        f"{type(error).__name__}: {error}. Mend it until `python -c 'import {module_name}'` works."
    )


def _no_function(key: str, target: str, found: object, takes: str) -> ConfigError:
    return ConfigError(
        f"{key}={target}: this is no function but a {type(found).__name__}. "
        f"Name a function that takes {takes}."
    )


def _functions_of(found: object) -> list[str]:
    return [name for name, _ in inspect.getmembers(found, inspect.isfunction)]
