"""On which kind of device a trial ends first, its wait counted. Pure.

    end  =  when a place comes free, after those that wait before it  +  how long it takes

Of the trials that are still to be asked for nobody knows the wait, but all of them have one. So
what the CPU is best at of all goes there even while the line for a GPU is short (`best_split`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from automl.trial import DeviceKind


@dataclass(frozen=True)
class Option:
    """A kind of device that a trial may go to."""

    kind: DeviceKind
    wait_seconds: float
    """0: it can start now."""
    seconds: float
    """That it takes there."""

    @property
    def end_seconds(self) -> float:
        return self.wait_seconds + self.seconds


@dataclass(frozen=True)
class Seconds:
    """What a trial takes on each kind of device."""

    cpu: float
    gpu: float

    @property
    def ratio(self) -> float:
        return self.cpu / self.gpu


def first_to_end(options: Sequence[Option]) -> Option:
    """Of those that end at the same time a GPU."""
    return min(options, key=lambda o: (o.end_seconds, o.kind is DeviceKind.CPU))


@dataclass(frozen=True)
class Split:
    """How trials like these would be shared between the CPU and GPUs for all to end soonest."""

    most_ratio: float = 0.0
    """Of seconds on the CPU to seconds on a GPU: those below it go to the CPU."""
    trial_seconds: float = 0.0
    """From one trial's end to the next, with all places busy."""


def best_split(trials: Sequence[Seconds], n_cpu: int, n_gpu: int) -> Split:
    """Of trials by what each takes there, with so many places of each kind."""
    if not trials:
        return Split()
    cpu, gpu, ratio = 0.0, sum(t.gpu for t in trials) / n_gpu, 0.0
    for trial in sorted(trials, key=lambda t: t.ratio):
        more, less = cpu + trial.cpu / n_cpu, gpu - trial.gpu / n_gpu
        if more > less:
            break
        cpu, gpu, ratio = more, less, trial.ratio
    return Split(ratio, max(cpu, gpu) / len(trials))


class Line:
    """The places of one kind of device, and when each comes free, as trials wait for them."""

    def __init__(self, left_seconds: Iterable[float]) -> None:
        """Of what runs there, each with a place."""
        self._free = list(left_seconds)
        heapq.heapify(self._free)

    def wait_seconds(self, seconds: float) -> float:
        """Until one more that takes so long can start. Where nothing runs that could end it waits
        for others, nobody knows how long: as long as it takes itself."""
        return self._free[0] if self._free else seconds

    def join(self, seconds: float) -> None:
        """One that takes so long waits there."""
        if self._free:
            heapq.heapreplace(self._free, self._free[0] + seconds)
