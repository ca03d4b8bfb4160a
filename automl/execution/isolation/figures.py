"""Figures that matplotlib keeps until they are closed: those of a trial end with it."""

from __future__ import annotations

import sys
from typing import Any


def get() -> frozenset[int]:
    """Their numbers."""
    pyplot = _pyplot()
    return frozenset() if pyplot is None else frozenset(pyplot.get_fignums())


def put_back(before: frozenset[int]) -> None:
    """Close what is new. One that the trial closed cannot be opened again."""
    for number in get() - before:
        _pyplot().close(number)
    if get() != before:
        raise RuntimeError("one that was open before the trial was closed")


def _pyplot() -> Any:
    return sys.modules.get("matplotlib.pyplot")
