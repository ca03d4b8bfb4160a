"""Measures the most memory that a trial held.

torch counts the memory on GPUs and the kernel the main memory, both by process: a trial is measured
only if it was alone in its process all the time. GPU memory that torch does not count (JAX, CuPy)
is left out; admission sees it through NVML.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from automl.trial import MemoryPeakMeasured

GROWTH = 1.05
"""A peak is reported again when it has grown by this factor."""
_CHECK_SECONDS = 0.1
"""Seconds between two checks while a trial reports: torch takes 0.1 ms to return its peak."""
_RESET_PEAK = "5"
"""The text that resets the peak when written to clear_refs: proc_pid_clear_refs(5)."""


class DeviceMemoryPeak(NamedTuple):
    """The peak of a trial's memory, on the device where the trial held most."""

    held_bytes: int
    """Memory that torch took on a GPU, or growth of the process in main memory."""
    allocated_bytes: int = 0
    """The part of a GPU's `held_bytes` that tensors used."""
    on_each_bytes: tuple[int, ...] = ()
    """The held memory on each of several GPUs, in their order."""

    def exceeds(self, reported: DeviceMemoryPeak, factor: float) -> bool:
        """Return whether the peak is above `factor` times the reported one, on any device."""
        now, before = self._by_device, reported._by_device
        if len(before) < len(now):  # nothing was reported yet
            before = (0,) * len(now)
        return any(new > factor * old for new, old in zip(now, before, strict=True))

    @property
    def _by_device(self) -> tuple[int, ...]:
        return self.on_each_bytes or (self.held_bytes,)


GetPeak: TypeAlias = Callable[[], "DeviceMemoryPeak | None"]
"""Returns the peak so far; None: it cannot be measured."""


class MemoryPeakMeter:
    """Measures the trials of this process, one after another. Trials side by side get no peak."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._n_started = 0
        self._forked_bytes = _forked_bytes()

    @contextmanager
    def watching(self, devices: Sequence[str], *, on_host: bool) -> Iterator[GetPeak]:
        """Yield a function that returns the peak of the trial (or pack) that trains in the block.

        `on_host` means that the trial was placed on the host. A trial that trains on the CPU
        because torch cannot use its GPU is not measured.
        """
        if not on_host and devices[0] == "cpu":
            yield lambda: None
            return
        with self._lock:
            self._n_started += 1
            own_number = self._n_started
            alone = not any(self._running[device] for device in devices)
            self._running.update(devices)
        get_peak = self._begin(devices, on_host=on_host, alone=alone)
        try:
            yield lambda: get_peak() if alone and self._n_started == own_number else None
        finally:
            with self._lock:
                self._running.subtract(devices)

    def _begin(self, devices: Sequence[str], *, on_host: bool, alone: bool) -> GetPeak:
        if on_host:
            return self._host_peak if self._forked_bytes is not None and _reset() else lambda: None
        import torch

        torch.cuda.empty_cache()  # admission would count the caches of earlier trials as taken
        if alone:
            for device in devices:
                torch.cuda.reset_peak_memory_stats(device)
        return lambda: largest_peak(list(map(_cuda_peak, devices)))

    def _host_peak(self) -> DeviceMemoryPeak:
        # The same value as VmHWM, read 25 times as fast; it starts at 0 unless the process was
        # replaced.
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return DeviceMemoryPeak(max(0, peak_bytes - (self._forked_bytes or 0)))


class PeakReporter:
    """Makes the events for the memory peak of a trial or a pack.

    An event is due with the first report of the study's metric, whenever the peak has grown by 5 %,
    and at the end. Without arguments there are no events.
    """

    def __init__(
        self, get_peak: GetPeak = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._get_peak, self._clock = get_peak, clock
        self._reported = DeviceMemoryPeak(0)
        self._next_check = -float("inf")

    @property
    def held_bytes(self) -> float | None:
        """The peak that was reported last; None: there is none."""
        return float(self._reported.held_bytes) or None

    def grown(self, trial: int, n_lanes: int = 1) -> Iterator[MemoryPeakMeasured]:
        """Yield an event if the peak has grown; checks are rare enough to cost reports nothing."""
        now = self._clock()
        if now >= self._next_check:
            self._next_check = now + _CHECK_SECONDS
            yield from self._if_above(GROWTH, trial, n_lanes)

    def last(self, trial: int, n_lanes: int = 1) -> Iterator[MemoryPeakMeasured]:
        """Yield an event at the end of a trial if the peak is above the reported one."""
        return self._if_above(1.0, trial, n_lanes)

    def _if_above(self, factor: float, trial: int, n_lanes: int) -> Iterator[MemoryPeakMeasured]:
        peak = self._get_peak()
        if peak is not None and peak.exceeds(self._reported, factor):
            self._reported = peak
            yield MemoryPeakMeasured(
                trial,
                time.time(),
                peak.held_bytes,
                n_lanes,
                peak.allocated_bytes,
                on_each_bytes=peak.on_each_bytes,
            )


def largest_peak(peaks: Sequence[DeviceMemoryPeak]) -> DeviceMemoryPeak:
    """Return the largest peak of a trial's devices, with the memory held on each of several."""
    if len(peaks) == 1:
        return peaks[0]
    return max(peaks)._replace(on_each_bytes=tuple(peak.held_bytes for peak in peaks))


def _cuda_peak(device: str) -> DeviceMemoryPeak:
    import torch

    return DeviceMemoryPeak(
        torch.cuda.max_memory_reserved(device), torch.cuda.max_memory_allocated(device)
    )


def _forked_bytes() -> int | None:
    """Return the bytes that a worker got from the fork server; None if this is no worker."""
    if multiprocessing.parent_process() is None or not sys.platform.startswith("linux"):
        return None
    try:
        status = Path(f"/proc/{os.getppid()}/status").read_text()
    except OSError:
        return None
    shared = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return None if shared is None else 1024 * int(shared[1])


def _reset() -> bool:
    """Reset the kernel's peak of this process; return whether that worked."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True
