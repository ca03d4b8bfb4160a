"""Which of a study's models a command means."""

from __future__ import annotations

import enum


class WhichModel(enum.Enum):
    """A trial's own model, or `refit.pt`, the winner trained again."""

    auto = "auto"
    """The refit where there is one and no trial is named, else the trial."""
    trial = "trial"
    refit = "refit"
