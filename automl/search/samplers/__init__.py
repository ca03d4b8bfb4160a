"""The samplers by the names that users choose them by: `tpe.py` is `sampler=tpe`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping

from automl.search.samplers.sampler import Sampler


@functools.cache
def samplers() -> Mapping[str, type[Sampler]]:
    """The class of each option: the one that the module of its name defines."""
    found = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for cls in vars(module).values():
            if _is_option(cls) and cls.__module__ == module.__name__:
                found[module_info.name] = cls
    return found


def _is_option(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Sampler) and not inspect.isabstract(value)
