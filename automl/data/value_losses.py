"""Losses of predicted numbers, row by row; what networks descend is in `training/losses.py`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.config.losses import ValueLoss

Floats = npt.NDArray[np.float64]
_LEAST_SHARE = 1e-6
"""Of the target's scale: a rate that is predicted counts as so much at least."""


def per_row(loss: ValueLoss, values: Floats, y: Floats, scale: float) -> Floats:
    """(…, N) losses of values for targets (N,), both in the target's unit; as in training, where
    targets are divided by `scale`.

    Squared errors; absolute ones; those of a quantile (Koenker and Bassett, 1978: above it by its
    share, below it by the rest); of rates the deviance (twice the log-likelihood ratio of Poisson).
    """
    errors = y - values
    found: Floats
    if loss.name == "absolute_error":
        found = np.abs(errors) / scale
    elif loss.name == "quantile":
        found = np.maximum(loss.quantile * errors, (loss.quantile - 1) * errors) / scale
    elif loss.name == "poisson":
        rates = np.maximum(values, _LEAST_SHARE * scale)
        logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / rates), 0)
        found = 2 * (logs - y + rates)
    else:
        found = np.square(errors) / scale**2
    return found
