"""How long a step takes on each kind of device, learned from trials that were timed. Pure.

    seconds of a step  ≈  a + b · work                       by non-negative least squares

a is what a step costs however little it computes (Python, kernel launches), b what an operation
does; the work is arithmetic of the family. Each trial counts alike, whatever its size: its row is
divided by the seconds that it took. Until trials tell otherwise, and for sizes that none had, a and
b are as below, times the factor by which trials were slower than that.

Of a trial whose work nobody knows the whole counts: the mean of those that finished on the kind.
Only sums are kept. Measured in `experiments/008-choosing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from automl.admission.bounds import nonnegative_least_squares
from automl.trial import DeviceKind, Work

_PRIOR: Mapping[DeviceKind, tuple[float, float]] = {
    DeviceKind.CPU: (3e-4, 1 / 40e9),
    DeviceKind.GPU: (6e-4, 1 / 10e12),
}
"""Seconds of a step without work and of an operation: one core, and a GPU of a data center. That
they are right matters little: each is soon outweighed by what was timed."""
_PRIOR_TRIALS = 0.25
"""What each end of that line is worth, in trials."""
_SMALL, _LARGE = 1e4, 1e12
"""Work of its ends."""
_UNIT = 1e9
"""Operations that count as one, so that both features are of like size."""
_ONE = 1 << 128
"""Of fixed point: whole numbers add up without rounding, so what was added can be taken back."""


@dataclass(frozen=True)
class _Timed:
    """One trial on one kind of device."""

    kind: DeviceKind
    step_flops: float
    step_seconds: float


class Paces:
    """What was timed in one study. For the main thread."""

    def __init__(self) -> None:
        self._timed: dict[int, _Timed] = {}
        self._lines = {kind: _Line(kind) for kind in DeviceKind}
        self._whole: dict[DeviceKind, dict[int, float]] = {kind: {} for kind in DeviceKind}

    def add(self, trial: int, kind: DeviceKind, step_flops: float, step_seconds: float) -> None:
        """Steps of a trial took so long; what is told last counts."""
        if not 0 < step_seconds < math.inf:
            return
        if (before := self._timed.get(trial)) is not None:
            self._lines[before.kind].add(before, -1)
        self._timed[trial] = new = _Timed(kind, step_flops, step_seconds)
        self._lines[kind].add(new, 1)

    def finished(self, trial: int, kind: DeviceKind, seconds: float) -> None:
        """A whole trial took so long."""
        self._whole[kind][trial] = seconds

    def most_timed(self, kind: DeviceKind) -> float:
        """The most operations of a step that was timed there; 0: none was."""
        return max((t.step_flops for t in self._timed.values() if t.kind is kind), default=0.0)

    def seconds(self, work: Work | None, kind: DeviceKind) -> float | None:
        """That a whole trial takes there; None: its work is not known, and none has finished."""
        if work is not None:
            return work.n_steps * self._lines[kind].seconds(work.step_flops)
        whole = self._whole[kind]
        return sum(whole.values()) / len(whole) if whole else None


class _Line:
    """a + b · work on one kind of device."""

    def __init__(self, kind: DeviceKind) -> None:
        self._prior = _PRIOR[kind]
        self.n = 0
        self._gram, self._moments = [[0, 0], [0, 0]], [0, 0]
        """(2, 2) and (2,), over trials: rows of 1 and the work, divided by the seconds. In fixed
        point."""
        self._log_slower = 0
        """Σ log(timed / prior)"""
        self._fitted: tuple[float, float] | None = None

    def add(self, timed: _Timed, sign: int) -> None:
        row = (1 / timed.step_seconds, timed.step_flops / _UNIT / timed.step_seconds)
        for i, a in enumerate(row):
            self._moments[i] += sign * _fixed(a)
            for j, b in enumerate(row):
                self._gram[i][j] += sign * _fixed(a * b)
        slower = timed.step_seconds / _on(self._prior, timed.step_flops)
        self._log_slower += sign * _fixed(math.log(slower))
        self.n += sign
        self._fitted = None

    def seconds(self, step_flops: float) -> float:
        if self._fitted is None:
            self._fitted = self._fit()
        return _on(self._fitted, step_flops)

    def _fit(self) -> tuple[float, float]:
        gram = [[value / _ONE for value in line] for line in self._gram]
        moments = [value / _ONE for value in self._moments]
        factor = math.exp(self._log_slower / _ONE / (self.n + _PRIOR_TRIALS))
        for work in (_SMALL, _LARGE):
            seconds = factor * _on(self._prior, work)
            row = (1 / seconds, work / _UNIT / seconds)
            for i, a in enumerate(row):
                moments[i] += _PRIOR_TRIALS * a
                for j, b in enumerate(row):
                    gram[i][j] += _PRIOR_TRIALS * a * b
        base, slope = nonnegative_least_squares(gram, moments)
        return base, slope / _UNIT


def _on(line: tuple[float, float], step_flops: float) -> float:
    return line[0] + line[1] * step_flops


def _fixed(value: float) -> int:
    return int(value * _ONE)
