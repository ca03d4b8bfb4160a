"""What kind of model is trained.

What proposes params.

What stops bad trials early.

Options that users choose by name: a package with one file for each, named as they name it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar


@dataclass
class ModelConfig:
    """The family of models that the built-in objective trains: one subclass per option of `model=`,
    in `training/`."""

    choice: ClassVar[str | None] = None
    """The param by which each trial says which family it is of; None: all are of this one."""


@dataclass
class SamplerConfig:
    """What proposes params: one subclass per option of `sampler=`, in `search/samplers/`."""


@dataclass
class PrunerConfig:
    """What stops bad trials early: one subclass per option of `pruner=`, in `search/pruners/`."""


def load_options(package: str, contract: type[object]) -> dict[str, Any]:
    """The class of each option, by name: the one that the module of its name defines."""
    found: dict[str, type] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for cls in vars(module).values():
            if _is_option(cls, contract, module):
                found[info.name] = cls
    return found


def _is_option(value: object, contract: type[object], module: ModuleType) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, contract)
        and not inspect.isabstract(value)
        and value.__module__ == module.__name__
    )
