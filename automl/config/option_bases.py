"""Base classes of options that users choose by name (models, samplers, pruners), and discovery.

The file is apart, because the packages of options import it. Each package has one file per option,
which bears the option's name.
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
    """The family of models that the built-in objective trains.

    Each option of `model=` has a subclass, in `models/families/`.
    """

    choice: ClassVar[str | None] = None
    """The param by which each trial chooses a family; None: all trials are of this family."""


@dataclass
class SamplerConfig:
    """The sampler, which proposes params.

    Each option of `sampler=` has a subclass, in `search/samplers/`.
    """


@dataclass
class PrunerConfig:
    """The pruner, which stops bad trials early.

    Each option of `pruner=` has a subclass, in `search/pruners/`.
    """


def load_options(package: str, contract: type[object]) -> dict[str, Any]:
    """Return the class of each option by name; the module of that name defines it."""
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
