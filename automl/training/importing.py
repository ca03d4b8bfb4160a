"""A user's file imported, as `python FILE` would find it, and without the sweep's arguments."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from automl.errors import ConfigError

_importing = threading.RLock()
"""Several threads look networks up; a module may have another looked up while it is imported."""
_files: dict[Path, ModuleType] = {}
"""Those that were imported, by path."""


def import_file(key: str, file: str, target: str) -> ModuleType:
    """The module that a file holds, made once per process; its folder is on the Python path then.

    Raises ConfigError where it is not there, or what its code raises.
    """
    path = Path(file).resolve()
    with _importing:
        if path in _files:
            return _files[path]
        if not path.is_file():
            raise ConfigError(
                f"{key}={target}: there is no file {file} in {Path.cwd()}. Start from the folder "
                "it is in, or give its path."
            )
        name = _module_name(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, "it ends in .py"
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        if str(path.parent) not in sys.path:  # where its own imports look, and other processes
            sys.path.insert(0, str(path.parent))
        sys.modules[name] = module
        try:
            with argv_of(file):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # the user's file may raise anything at its top
            del sys.modules[name]
            raise import_failed(key, file, target, error) from error
        _files[path] = module
        return module


@contextmanager
def argv_of(program: str) -> Iterator[None]:
    """A script that parses arguments as it is imported sees none, rather than the sweep's."""
    with _importing:
        before = sys.argv
        sys.argv = [program]
        try:
            yield
        finally:
            sys.argv = before


def import_failed(key: str, program: str, target: str, error: BaseException) -> ConfigError:
    """What is said where a module or a file raises while it is imported."""
    tried = f"python {program}" if program.endswith(".py") else f"python -c 'import {program}'"
    return ConfigError(
        f"{key}={target}: importing {program} failed with "
        f"{type(error).__name__}: {error}. Mend it until `{tried}` works."
    )


def _module_name(path: Path) -> str:
    """The file's own, by which what it defines is pickled, unless that is another module's."""
    name = path.stem.replace(".", "_")
    taken = name in sys.modules or name in sys.stdlib_module_names
    return f"_automl_{name}" if taken else name
