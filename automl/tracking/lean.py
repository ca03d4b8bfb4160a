"""MLflow as `mlflow-skinny` installs it, without pandas and numpy, for a process that writes runs.

MLflow loads them for data sets and models, and does without where they are missing. To load them
takes 0.45 of the 1.55 s of a core that the delivering process needs until its store is open.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType

EXTRAS = ("numpy", "pandas", "pyarrow", "pygments", "scipy")
"""What MLflow, and what it uses to open a database, tries to import and can do without."""


def load_lean(module: str, extras: Sequence[str] = EXTRAS) -> ModuleType:
    """Import a module that imports MLflow, and has MLflow do without `extras` for good.

    One that cannot do without them is imported with them.
    """
    try:
        with without_extras(extras):
            return importlib.import_module(module)
    except ImportError:
        return importlib.import_module(module)


@contextmanager
def without_extras(extras: Sequence[str] = EXTRAS) -> Iterator[None]:
    """`extras` that are not loaded yet cannot be imported in the block; afterwards they can.

    Where others have installed a plugin of MLflow's, which may need them, all stays as it is.
    """
    absent = [] if _has_foreign_plugin() else [name for name in extras if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # as the import statement knows it
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name)


def _has_foreign_plugin() -> bool:
    """Whether MLflow would import code that is neither its own nor ours."""
    installed = metadata.entry_points()
    return any(
        point.module.partition(".")[0] not in ("mlflow", "automl")
        for group in installed.groups
        if group.startswith("mlflow.")
        for point in installed.select(group=group)
    )
