"""The samplers by the names that users choose: `tpe.py` is `sampler=tpe`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from automl.config.option_bases import load_options
from automl.search.samplers.sampler import Sampler


@functools.cache
def samplers() -> Mapping[str, type[Sampler]]:
    """Return the class of each sampler by its name."""
    return load_options(__name__, Sampler)
