"""What stands in for the libraries that an objective logs through, as the sweep names it."""

from __future__ import annotations

import pkgutil
from typing import cast

from automl.record.inside import Inside, NothingInside
from automl.trial import Entry


def open_inside(entry: Entry | None) -> Inside:
    """What the entry's function makes, once for a process; None: nothing does."""
    if entry is None:
        return NothingInside()
    return cast(Inside, pkgutil.resolve_name(entry.target)(entry.config))
