"""What changes from step to step of a training by its step's number alone: no state, no torch."""

from __future__ import annotations

import math

from automl.config import Schedule

_RISE = 0.3  # of all steps; these three are torch's for OneCycleLR
_FIRST = 1 / 25
_LAST = _FIRST / 1e4


def lr_factor(schedule: str, step: int, n_steps: int) -> float:
    """What the learning rate of a step, counted from 0, is multiplied by.

    cosine is torch's CosineAnnealingLR (Loshchilov and Hutter, 2017), onecycle its OneCycleLR
    without a cycle of momentum (Smith and Topin, 2018), each once over `n_steps`.
    """
    if schedule == Schedule.cosine.value:
        return _between(1.0, 0.0, step / n_steps)
    if schedule == Schedule.onecycle.value:
        top, last = _RISE * n_steps - 1, n_steps - 1
        if step <= top:
            return _between(_FIRST, 1.0, step / top if top > 0 else 1.0)
        return _between(1.0, _LAST, (step - top) / (last - top))
    return 1.0


def average_rate(decay: float, step: int) -> float:
    """How far the average of the weights goes to them after a step, counted from 0.

    Less is kept at first, since an average that begins with drawn weights is theirs for long: of
    so many steps it keeps (1 + n) / (10 + n) at most, as TensorFlow's ExponentialMovingAverage.
    """
    return 1.0 - min(decay, (1 + step) / (10 + step))


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
