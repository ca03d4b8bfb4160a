"""Which of a study's models a command means."""

from __future__ import annotations

import enum


class WhichModel(enum.Enum):
    """A trial's own model, `refit.pt`, the winner trained again, or `ensemble.pt`."""

    auto = "auto"
    """The refit if there is one and no trial is named, else the ensemble, else the best trial's."""
    trial = "trial"
    refit = "refit"
    ensemble = "ensemble"
    """`ensemble.pt`: the weighted mean of trials' models."""
