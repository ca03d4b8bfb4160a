"""The pruners by the names that users choose: `halving.py` is `pruner=halving`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from automl.config.option_bases import load_options
from automl.search.pruners.pruner import Pruner


@functools.cache
def pruners() -> Mapping[str, type[Pruner]]:
    """Return the class of each pruner by its name."""
    return load_options(__name__, Pruner)
