"""Keeps the memory that trials of a study were seen to hold: by trial, by params, by structure.

Single trials and packs are kept apart, and so are the host and GPUs: neither says anything about
the other. Everything follows from the arguments of `add`, in any order, so an earlier sweep's peaks
count like this one's. `MemoryTally` compares requests with peaks for the line at the end of a
sweep. Pure.
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
    """The most memory that a trial, or its pack, was seen to hold on a device."""

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
        self._peaks_by_params: dict[Hashable, dict[int, int]] = defaultdict(dict)
        """Peaks by kind and params, then by trial."""
        self._peaks_alone: dict[DeviceKind, list[int]] = defaultdict(list)
        """Peaks of single trials by kind, in ascending order."""
        self._footprints: dict[Hashable, MemoryFootprint] = defaultdict(MemoryFootprint)

    def all(self) -> list[MeasuredTrial]:
        return [m for of_trial in self._by_trial.values() for m in of_trial.values()]

    def add(self, trial: int, measured: MeasuredTrial) -> None:
        """Take a measurement. The largest peak of a trial counts; a peak of 0 was not measured."""
        where = (measured.kind, measured.n_lanes)
        previous = self._by_trial[trial].get(where)
        if measured.peak_bytes <= (0 if previous is None else previous.peak_bytes):
            return
        if previous is not None:
            self._remove(trial, previous)
        self._by_trial[trial][where] = measured
        if measured.n_lanes == 1:
            self._peaks_by_params[params_key(measured.params, measured.kind)][trial] = (
                measured.peak_bytes
            )
            bisect.insort(self._peaks_alone[measured.kind], measured.peak_bytes)
        if measured.structure is not None:
            footprint = self._footprint(measured.structure, measured.kind, measured.n_lanes)
            footprint.add(measured.structure.times(measured.n_lanes), measured.peak_bytes)

    def drop(self, trial: int) -> None:
        """Forget a trial that may have ended before it held all that it wants."""
        for previous in self._by_trial.pop(trial, {}).values():
            self._remove(trial, previous)

    def most_bytes(self, params: Params, kind: DeviceKind) -> int | None:
        """Return the most that a single trial with these params was seen to hold; None: no such
        trial was."""
        return max(self._peaks_by_params.get(params_key(params, kind), {}).values(), default=None)

    def held_by_most(self, kind: DeviceKind) -> int | None:
        """Return what nine of ten single trials held at most, whatever their params; None: too few
        were measured."""
        peaks = self._peaks_alone[kind]
        return peaks[math.ceil(MOST * len(peaks)) - 1] if len(peaks) >= ENOUGH_TRIALS else None

    def bound_bytes(
        self, structure: MemoryStructure, kind: DeviceKind, n_lanes: int = 1
    ) -> int | None:
        """Return the most that a trial holds; None while no trial of its sort was measured.

        For a pack of `n_lanes`, `structure` is that of its largest member.
        """
        return self._footprint(structure, kind, n_lanes).bound_bytes(structure.times(n_lanes))

    def _remove(self, trial: int, previous: MeasuredTrial) -> None:
        if previous.n_lanes == 1:
            del self._peaks_by_params[params_key(previous.params, previous.kind)][trial]
            peaks = self._peaks_alone[previous.kind]
            del peaks[bisect.bisect_left(peaks, previous.peak_bytes)]
        if previous.structure is not None:
            footprint = self._footprint(previous.structure, previous.kind, previous.n_lanes)
            footprint.remove(previous.structure.times(previous.n_lanes), previous.peak_bytes)

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
    n_within = sum(ratio >= 1 for ratio in ratios)
    whose = "its" if n == 1 else "their"
    line = f"memory: {n_within} of {n} trial{'s'[: n > 1]} within {whose} request"
    if ratios:
        line += f" (median {statistics.median(ratios):.2f} times the peak)"
    return line + (f", {n_ran_out} ran out and ran again" if n_ran_out else "")
