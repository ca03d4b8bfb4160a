"""How requests stood to what trials held, said at the end of a sweep. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from automl.devices.device import Reading
from automl.trial import MemoryPeak, Request, RequestSource


class MemoryTally:
    """Collects what is said at the end of GPU trials. For one thread."""

    def __init__(self) -> None:
        self._trials: dict[int, tuple[Request, int]] = {}
        """Of each that was measured by itself the last request, and its peak in bytes."""
        self._read_seconds: float | None = None
        self._seconds = self._full_seconds = 0.0

    def measured(self, peak: MemoryPeak, request: Request) -> None:
        """A trial holds so much."""
        before = self._trials.get(peak.trial)
        most = before[1] if before is not None and before[0] == request else 0
        self._trials[peak.trial] = (request, max(most, peak.peak_bytes))

    def read(self, reading: Reading) -> None:
        """How full the GPUs are counts for the time since the reading before."""
        gpus = [d for d in reading.devices if not d.address.on_host and d.fault is None]
        if not gpus:
            return
        taken = sum(gpu.total_bytes - gpu.free_bytes for gpu in gpus)
        seconds = reading.begun_seconds - (self._read_seconds or reading.begun_seconds)
        self._seconds += seconds
        self._full_seconds += seconds * taken / sum(gpu.total_bytes for gpu in gpus)
        self._read_seconds = reading.begun_seconds

    def line(self) -> str | None:
        """See `memory_line`; with how full the GPUs were. None: no GPU trial was measured."""
        line = memory_line(self._trials.values())
        if line is None or not self._seconds:
            return line
        percent = 100 * self._full_seconds / self._seconds
        return f"{line}; GPUs {percent:.0f} % full over time"


def memory_line(trials: Iterable[tuple[Request, int]]) -> str | None:
    """`memory: 97 of 98 trials within their request (median 1.21 times the peak), 1 ran out and ran
    again`; None where no trial was measured.

    `trials`: of each that was measured (peak above 0) the last request and the peak in bytes. A
    trial of unknown size counts only if it ran out of memory before.
    """
    measured = [(request, peak) for request, peak in trials if peak > 0]
    n_again = sum(request.source is RequestSource.RAN_OUT for request, _ in measured)
    ratios = [
        request.memory_bytes / peak
        for request, peak in measured
        if request.memory_bytes is not None and request.source is not RequestSource.RAN_OUT
    ]
    n = len(ratios) + n_again
    if not n:
        return None
    line = f"memory: {sum(r >= 1 for r in ratios)} of {n} trial{'s'[: n > 1]} within their request"
    if ratios:
        line += f" (median {statistics.median(ratios):.2f} times the peak)"
    return line + (f", {n_again} ran out and ran again" if n_again else "")
