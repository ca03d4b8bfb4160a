"""Learns how long trials take on each kind of device, and finds where a trial ends first. Pure.

    seconds of a step  ≈  a + b · work                       by non-negative least squares

a is the cost of a step however little it computes (Python, kernel launches), b the cost of an
operation; the work is arithmetic of the family. Each trial counts alike, whatever its size: its row
is divided by its seconds. Until trials show otherwise, and for sizes that no trial had, a and b are
the constants below, times the factor by which trials were slower. A trial whose work is not known
is expected to take the mean of the trials that finished on the kind of device. Only sums are kept.
Measured in `experiments/008-choosing`.

    end  =  when a place comes free, after the trials that wait before it  +  how long it takes

The wait of trials that are still to be suggested is not known, but all of them will wait. So trials
that suit the CPU best go there even while the queue for a GPU is short (`best_device_kind_split`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from automl.admission.footprint import nonnegative_least_squares
from automl.trial import DeviceKind, TrainingWork

_PRIOR: Mapping[DeviceKind, tuple[float, float]] = {
    DeviceKind.CPU: (3e-4, 1 / 40e9),
    DeviceKind.GPU: (6e-4, 1 / 10e12),
}
"""Seconds of a step without work, and of an operation: one core, and a GPU of a data center.

Their precision matters little: timed trials soon outweigh them.
"""
_PRIOR_TRIALS = 0.25
"""Weight of each end of the prior line, in trials."""
_SMALL, _LARGE = 1e4, 1e12
"""Work of its ends."""
_UNIT = 1e9
"""Number of operations in the unit of work, so that both features are of like size."""
_ONE = 1 << 128
"""The number 1 in fixed point. Whole numbers add up without rounding, so what was added can be
taken back."""


@dataclass(frozen=True)
class _TimedTrial:
    """The timed steps of one trial on one kind of device."""

    kind: DeviceKind
    step_flops: float
    step_seconds: float


class TrainingPaces:
    """Keeps what was timed in one study. For the main thread."""

    def __init__(self) -> None:
        self._timed: dict[int, _TimedTrial] = {}
        self._lines = {kind: _StepSecondsLine(kind) for kind in DeviceKind}
        self._whole: dict[DeviceKind, dict[int, float]] = {kind: {} for kind in DeviceKind}

    def add(self, trial: int, kind: DeviceKind, step_flops: float, step_seconds: float) -> None:
        """Take the time of a trial's steps; the last measurement of a trial counts."""
        if not 0 < step_seconds < math.inf:
            return
        if (before := self._timed.get(trial)) is not None:
            self._lines[before.kind].add(before, -1)
        self._timed[trial] = new = _TimedTrial(kind, step_flops, step_seconds)
        self._lines[kind].add(new, 1)

    def finished(self, trial: int, kind: DeviceKind, seconds: float) -> None:
        """Take the time of a whole trial."""
        self._whole[kind][trial] = seconds

    def most_timed(self, kind: DeviceKind) -> float:
        """Return the most operations of a step that was timed there; 0: none was."""
        return max((t.step_flops for t in self._timed.values() if t.kind is kind), default=0.0)

    def seconds(self, work: TrainingWork | None, kind: DeviceKind) -> float | None:
        """Return how long a whole trial takes there; None: its work is not known, and no trial has
        finished."""
        if work is not None:
            return work.n_steps * self._lines[kind].seconds(work.step_flops)
        whole = self._whole[kind]
        return sum(whole.values()) / len(whole) if whole else None


class _StepSecondsLine:
    """Fits the seconds of a step on one kind of device as a line a + b · work (in FLOPs)."""

    def __init__(self, kind: DeviceKind) -> None:
        self._prior = _PRIOR[kind]
        self.n = 0
        self._gram, self._moments = [[0, 0], [0, 0]], [0, 0]
        """Gram matrix (2, 2) and moments (2,) over trials, in fixed point. A row is 1 and the
        work, divided by the seconds."""
        self._log_slower = 0
        """Sum of log(timed / prior) over trials, in fixed point."""
        self._fitted: tuple[float, float] | None = None

    def add(self, timed: _TimedTrial, sign: int) -> None:
        row = (1 / timed.step_seconds, timed.step_flops / _UNIT / timed.step_seconds)
        for i, a in enumerate(row):
            self._moments[i] += sign * _fixed(a)
            for j, b in enumerate(row):
                self._gram[i][j] += sign * _fixed(a * b)
        slower = timed.step_seconds / _seconds_on_line(self._prior, timed.step_flops)
        self._log_slower += sign * _fixed(math.log(slower))
        self.n += sign
        self._fitted = None

    def seconds(self, step_flops: float) -> float:
        if self._fitted is None:
            self._fitted = self._fit()
        return _seconds_on_line(self._fitted, step_flops)

    def _fit(self) -> tuple[float, float]:
        gram = [[value / _ONE for value in line] for line in self._gram]
        moments = [value / _ONE for value in self._moments]
        factor = math.exp(self._log_slower / _ONE / (self.n + _PRIOR_TRIALS))
        for work in (_SMALL, _LARGE):
            seconds = factor * _seconds_on_line(self._prior, work)
            row = (1 / seconds, work / _UNIT / seconds)
            for i, a in enumerate(row):
                moments[i] += _PRIOR_TRIALS * a
                for j, b in enumerate(row):
                    gram[i][j] += _PRIOR_TRIALS * a * b
        base, slope = nonnegative_least_squares(gram, moments)
        return base, slope / _UNIT


def _seconds_on_line(line: tuple[float, float], step_flops: float) -> float:
    return line[0] + line[1] * step_flops


def _fixed(value: float) -> int:
    return int(value * _ONE)


@dataclass(frozen=True)
class DeviceOption:
    """A kind of device that a trial may go to, with its wait and its duration there."""

    kind: DeviceKind
    wait_seconds: float
    """Time until the trial can start there; 0: it can start now."""
    seconds: float
    """Time that the trial takes there."""

    @property
    def end_seconds(self) -> float:
        return self.wait_seconds + self.seconds


@dataclass(frozen=True)
class TrialSecondsByKind:
    """The seconds that a trial takes on each kind of device."""

    cpu: float
    gpu: float

    @property
    def ratio(self) -> float:
        return self.cpu / self.gpu


def first_option_to_end(options: Sequence[DeviceOption]) -> DeviceOption:
    """Return the option that ends first; of equal ends the GPU's."""
    return min(options, key=lambda o: (o.end_seconds, o.kind is DeviceKind.CPU))


@dataclass(frozen=True)
class DeviceSplit:
    """How trials like these would be shared between the CPU and GPUs for all to end soonest."""

    most_ratio: float = 0.0
    """Largest ratio of seconds on the CPU to seconds on a GPU; trials up to this ratio go to the
    CPU."""
    trial_seconds: float = 0.0
    """Seconds from one trial's end to the next, with all places busy."""


def best_device_kind_split(
    trials: Sequence[TrialSecondsByKind], n_cpu: int, n_gpu: int
) -> DeviceSplit:
    """Return the best split of trials, given their seconds and the number of places of each
    kind."""
    if not trials:
        return DeviceSplit()
    cpu, gpu, ratio = 0.0, sum(t.gpu for t in trials) / n_gpu, 0.0
    for trial in sorted(trials, key=lambda t: t.ratio):
        more, less = cpu + trial.cpu / n_cpu, gpu - trial.gpu / n_gpu
        if more > less:
            break
        cpu, gpu, ratio = more, less, trial.ratio
    return DeviceSplit(ratio, max(cpu, gpu) / len(trials))


class DeviceQueue:
    """The places of one kind of device, and when each comes free, as trials wait for them."""

    def __init__(self, left_seconds: Iterable[float]) -> None:
        """Take the remaining seconds of the running trials, each of which has a place."""
        self._free = list(left_seconds)
        heapq.heapify(self._free)

    def wait_seconds(self, seconds: float) -> float:
        """Return the seconds until one more trial of this duration can start.

        Where nothing runs whose end could be awaited, the wait is unknown, and counts as long as
        the trial itself.
        """
        return self._free[0] if self._free else seconds

    def join(self, seconds: float) -> None:
        """Add a waiting trial of this duration to the queue."""
        if self._free:
            heapq.heapreplace(self._free, self._free[0] + seconds)
