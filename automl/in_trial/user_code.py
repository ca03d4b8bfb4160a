"""Finds the functions and classes that a user names by `module:function` or `file.py:function`.

A file is imported as `python FILE` would find it, without the sweep's arguments. If a function
cannot be loaded, the error gives the cause and the remedy. The module also opens the stand-in for
libraries that an objective logs through. It calls no user function.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from automl.errors import ConfigError
from automl.trial import ProcessEntry
from automl.trial.session_protocols import LoggingRedirect, NoLoggingRedirect

_importing = threading.RLock()
"""Held during imports, because several threads look up networks. It is reentrant: a module may look
up another one while it is imported."""
_files: dict[Path, ModuleType] = {}
"""The modules of imported files, by path."""


def import_file(key: str, file: str, target: str) -> ModuleType:
    """Import a file once per process, put its folder on the Python path, and return the module.

    Raises ConfigError if the file does not exist, or its code raises.
    """
    path = Path(file).resolve()
    with _importing:
        if path in _files:
            return _files[path]
        refuse_missing_target(key, target)
        name = _module_name(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, "it ends in .py"
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        if str(path.parent) not in sys.path:  # for the file's own imports, and for other processes
            sys.path.insert(0, str(path.parent))
        sys.modules[name] = module
        try:
            with script_argv(file):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # the user's file may raise anything at its top
            del sys.modules[name]
            raise import_failed(key, file, target, error) from error
        _files[path] = module
        return module


def refuse_missing_target(key: str, target: str) -> None:
    """Raise ConfigError if the file, or the module, of a target is not there. Imports nothing."""
    module = target.rpartition(":")[0]
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise ConfigError(
                f"{key}={target}: there is no file {module} in {Path.cwd()}. Start from the folder "
                "it is in, or give its path."
            )
        return
    top = module.partition(".")[0]
    is_here = PathFinder.find_spec(top, [os.getcwd()]) is not None
    if not is_here and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise _missing_module(key, target, top)


def _missing_module(key: str, target: str, name: str) -> ConfigError:
    return ConfigError(
        f"{key}={target}: there is no module {name} in {os.getcwd()} or "
        "on the Python path. Start from the folder it is in, or set PYTHONPATH."
    )


@contextmanager
def script_argv(program: str) -> Iterator[None]:
    """Hide the sweep's arguments from a script that parses arguments while it is imported."""
    with _importing:
        before = sys.argv
        sys.argv = [program]
        try:
            yield
        finally:
            sys.argv = before


def import_failed(key: str, program: str, target: str, error: BaseException) -> ConfigError:
    """Return the error for a module or a file that raises while it is imported."""
    tried = f"python {program}" if program.endswith(".py") else f"python -c 'import {program}'"
    return ConfigError(
        f"{key}={target}: importing {program} failed with "
        f"{type(error).__name__}: {error}. Mend it until `{tried}` works."
    )


def _module_name(path: Path) -> str:
    """Return the file's own name, under which its objects are pickled.

    If another module has the name, the result begins with `_automl_`.
    """
    name = path.stem.replace(".", "_")
    is_taken = name in sys.modules or name in sys.stdlib_module_names
    return f"_automl_{name}" if is_taken else name


def _resolve_function(key: str, takes: str, target: str) -> Callable[..., Any]:
    """Return the function or class that the setting `key` names; messages say what it `takes`.

    It is in a module in the current folder or on the Python path, or in a file
    (`train-model.py:train`). Raises ConfigError if the module is missing, fails on import (with its
    own message), or has no such function.
    """
    found = resolve_target(key, target)
    if not callable(found):
        raise ConfigError(
            f"{key}={target}: this is no function but a {type(found).__name__}. "
            f"Name a function that takes {takes}."
        )
    return found  # type: ignore[no-any-return]


resolve_objective = partial(
    _resolve_function, "objective.target", "an automl.TrialContext, or params"
)
"""Returns the function of a target. `function_call.py` decides how it is called."""
resolve_builder = partial(_resolve_function, "model.target", "n_inputs, n_outputs and params")
resolve_source = partial(_resolve_function, "data.source", "no arguments, and returns the data")
resolve_metric = partial(_resolve_function, "study.metric", "y_true and y_predicted")
resolve_loss = partial(_resolve_function, "training.loss", "outputs and targets, both tensors")


def resolve_target(key: str, target: str) -> Any:
    """Return what the setting `key` names. Raises ConfigError."""
    module_name, _, path = target.rpartition(":")
    is_file = module_name.endswith(".py")
    found: Any = (import_file if is_file else _import)(key, module_name, target)
    for name in path.split("."):
        if not hasattr(found, name):
            known = [known for known, _ in inspect.getmembers(found, inspect.isfunction)]
            raise ConfigError(
                f"{key}={target}: {module_name} has no {path}. "
                f"It has: {', '.join(known) or 'no functions'}."
            )
        found = getattr(found, name)
    return found


def _import(key: str, module_name: str, target: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script does not look there by itself
    if module_name not in sys.modules:  # a network is looked up for every trial
        # Otherwise a file that was written after the last search of its folder is not found.
        importlib.invalidate_caches()
    try:
        with script_argv(module_name):
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise _missing_module(key, target, error.name) from error
        raise import_failed(key, module_name, target, error) from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything at its top
        raise import_failed(key, module_name, target, error) from error


def open_inside(entry: ProcessEntry | None) -> LoggingRedirect:
    """Make the stand-in for libraries that an objective logs through, once for a process.

    Without an entry the stand-in redirects nothing.
    """
    if entry is None:
        return NoLoggingRedirect()
    return cast(LoggingRedirect, pkgutil.resolve_name(entry.target)(entry.config))
