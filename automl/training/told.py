"""What a trial comes to where its reports do not tell: its value, and its model, at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Told:
    """Returned by an estimator whose `Goal` says that values are told at the end."""

    step: int
    """The last that any of it is of."""
    metrics: Mapping[str, float]
    """The study's metric among them is the trial's value."""
    state: Mapping[str, Any]
    """What `best.pt` holds."""
