"""Keeps the memory that trials of a study were seen to hold: by trial, by params, by structure.

Single trials and packs are kept apart, and so are the host and GPUs: neither tells of the other.
Everything follows from the arguments of `add`, in any order, so an earlier sweep's peaks count like
this one's. `MemoryTally` compares requests with peaks for the line at the end of a sweep. Pure.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from automl.admission.footprint import MemoryFootprint, MemoryStructure
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceKind, MemoryPeakMeasured, Params, RequestSource, ResourceRequest

MOST = 0.9
"""Share of the measured trials that "most" means."""
ENOUGH_TRIALS = 5
"""Number of trials from which on "most" is known; of fewer than ten the largest counts."""


@dataclass(frozen=True)
class MeasuredTrial:
    """The most memory that a trial, or a pack that it was of, was seen to hold on a device."""

    params: Params
    kind: DeviceKind
    peak_bytes: int
    n_lanes: int = 1
    structure: MemoryStructure | None = None
    """Structure of the single trial; None: not known."""


class TrialMeasurements:
    """The measured trials of one study. For the main thread."""

    def __init__(self) -> None:
        self._by_trial: dict[int, dict[Hashable, MeasuredTrial]] = defaultdict(dict)
        """Measurements by trial, then by kind of device and number of lanes."""
        self._seen: dict[Hashable, dict[int, int]] = defaultdict(dict)
        """Peaks by kind and params, then by trial."""
        self._alone: dict[DeviceKind, list[int]] = defaultdict(list)
        """Peaks of single trials by kind, in ascending order."""
        self._footprints: dict[Hashable, MemoryFootprint] = defaultdict(MemoryFootprint)

    def all(self) -> list[MeasuredTrial]:
        return [m for of_trial in self._by_trial.values() for m in of_trial.values()]

    def add(self, trial: int, new: MeasuredTrial) -> None:
        """Take a measurement. The largest peak of a trial counts; a peak of 0 was not measured."""
        where = (new.kind, new.n_lanes)
        was = self._by_trial[trial].get(where)
        if new.peak_bytes <= (0 if was is None else was.peak_bytes):
            return
        if was is not None:
            self._remove(trial, was)
        self._by_trial[trial][where] = new
        if new.n_lanes == 1:
            self._seen[params_key(new.params, new.kind)][trial] = new.peak_bytes
            bisect.insort(self._alone[new.kind], new.peak_bytes)
        if new.structure is not None:
            footprint = self._footprint(new.structure, new.kind, new.n_lanes)
            footprint.add(new.structure.times(new.n_lanes), new.peak_bytes)

    def drop(self, trial: int) -> None:
        """Forget a trial that may have ended before it held all that it wants."""
        for was in self._by_trial.pop(trial, {}).values():
            self._remove(trial, was)

    def most_bytes(self, params: Params, kind: DeviceKind) -> int | None:
        """Return the most that a single trial with these params was seen to hold; None: no such
        trial was."""
        return max(self._seen.get(params_key(params, kind), {}).values(), default=None)

    def held_by_most(self, kind: DeviceKind) -> int | None:
        """Return what nine of ten single trials held at most, whatever their params; None: too few
        were measured."""
        peaks = self._alone[kind]
        return peaks[math.ceil(MOST * len(peaks)) - 1] if len(peaks) >= ENOUGH_TRIALS else None

    def bound_bytes(
        self, structure: MemoryStructure, kind: DeviceKind, n_lanes: int = 1
    ) -> int | None:
        """Return the most that a trial holds; None while no trial of its sort was measured.

        For a pack of `n_lanes`, `structure` is that of its largest member.
        """
        return self._footprint(structure, kind, n_lanes).bound_bytes(structure.times(n_lanes))

    def _remove(self, trial: int, was: MeasuredTrial) -> None:
        if was.n_lanes == 1:
            del self._seen[params_key(was.params, was.kind)][trial]
            peaks = self._alone[was.kind]
            del peaks[bisect.bisect_left(peaks, was.peak_bytes)]
        if was.structure is not None:
            footprint = self._footprint(was.structure, was.kind, was.n_lanes)
            footprint.remove(was.structure.times(was.n_lanes), was.peak_bytes)

    def _footprint(
        self, structure: MemoryStructure, kind: DeviceKind, n_lanes: int
    ) -> MemoryFootprint:
        sort = (kind, n_lanes > 1, structure.source, len(structure.parts_bytes))
        return self._footprints[sort]


def params_key(params: Params, kind: DeviceKind) -> Hashable:
    """Return a key that is equal for equal params on one kind of device."""
    return kind, frozenset(params.items())


class MemoryTally:
    """Collects requests and peaks of GPU trials, for the line at the end of a sweep. For one
    thread."""

    def __init__(self) -> None:
        self._trials: dict[int, tuple[ResourceRequest, int]] = {}
        """Last request, and peak in bytes, of each trial that was measured by itself."""
        self._read_seconds: float | None = None
        self._seconds = self._full_seconds = 0.0

    def measured(self, peak: MemoryPeakMeasured, request: ResourceRequest) -> None:
        """Take the measured peak of a trial."""
        before = self._trials.get(peak.trial)
        most = before[1] if before is not None and before[0] == request else 0
        self._trials[peak.trial] = (request, max(most, peak.peak_bytes))

    def read(self, reading: DeviceReading) -> None:
        """Take how full the GPUs are, weighted with the time since the previous reading."""
        gpus = [d for d in reading.devices if not d.address.on_host and d.fault is None]
        if not gpus:
            return
        taken = sum(gpu.total_bytes - gpu.free_bytes for gpu in gpus)
        seconds = reading.begun_seconds - (self._read_seconds or reading.begun_seconds)
        self._seconds += seconds
        self._full_seconds += seconds * taken / sum(gpu.total_bytes for gpu in gpus)
        self._read_seconds = reading.begun_seconds

    def line(self) -> str | None:
        """Return the `memory_line` with how full the GPUs were; None: no GPU trial was measured."""
        line = memory_line(self._trials.values())
        if line is None or not self._seconds:
            return line
        percent = 100 * self._full_seconds / self._seconds
        return f"{line}; GPUs {percent:.0f} % full over time"


def memory_line(trials: Iterable[tuple[ResourceRequest, int]]) -> str | None:
    """Return `memory: 97 of 98 trials within their request (median 1.21 times the peak), 1 ran out
    and ran again`; None where no trial was measured.

    `trials`: last request, and peak in bytes, of each trial. A trial with peak 0 was not measured.
    A trial of unknown size counts only if it ran out of memory before.
    """
    measured = [(request, peak) for request, peak in trials if peak > 0]
    n_ran_out = sum(request.source is RequestSource.RAN_OUT for request, _ in measured)
    ratios = [
        request.memory_bytes / peak
        for request, peak in measured
        if request.memory_bytes is not None and request.source is not RequestSource.RAN_OUT
    ]
    n = len(ratios) + n_ran_out
    if not n:
        return None
    line = f"memory: {sum(r >= 1 for r in ratios)} of {n} trial{'s'[: n > 1]} within their request"
    if ratios:
        line += f" (median {statistics.median(ratios):.2f} times the peak)"
    return line + (f", {n_ran_out} ran out and ran again" if n_ran_out else "")
