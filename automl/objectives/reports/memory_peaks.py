"""The most memory that a trial held: of GPUs as torch counts it, of the host as the kernel does.

Both count by process, so a trial is measured only where it was alone in its own meanwhile. Memory
that torch does not count on a GPU (JAX, CuPy) is none of this; admission sees it through NVML.

Holds this process to what it may take of its GPUs.
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
"""A peak that grew by so much is told again."""
_LOOK_SECONDS = 0.1
"""Between two looks while a trial reports: torch takes 0.1 ms to say its peak."""
_RESET_PEAK = "5"
"""To clear_refs: proc_pid_clear_refs(5)."""


class DeviceMemoryPeak(NamedTuple):
    """On the device where most was held."""

    held_bytes: int
    """Of a GPU what torch took of it, of the host what the process has grown."""
    allocated_bytes: int = 0
    """Of a GPU the part that tensors had."""
    on_each_bytes: tuple[int, ...] = ()
    """What was held of each of several GPUs, in their order."""

    def exceeds(self, told: DeviceMemoryPeak, factor: float) -> bool:
        """Whether more is held than so many times what was told, on any device."""
        now, before = self._by_device, told._by_device
        if len(before) < len(now):  # nothing was told yet
            before = (0,) * len(now)
        return any(new > factor * old for new, old in zip(now, before, strict=True))

    @property
    def _by_device(self) -> tuple[int, ...]:
        return self.on_each_bytes or (self.held_bytes,)


GetPeak: TypeAlias = Callable[[], "DeviceMemoryPeak | None"]
"""The peak so far; None: it cannot be had."""


class MemoryPeakMeter:
    """Measures the trials of this process, one after another or (then in vain) side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._n_started = 0
        self._forked_bytes = _forked_bytes()

    @contextmanager
    def watching(self, devices: Sequence[str], *, on_host: bool) -> Iterator[GetPeak]:
        """Gives what tells the peak of the trial (or pack) that trains in the block. `on_host`: its
        placement says so; what trains on the CPU for want of a GPU is not measured."""
        if not on_host and devices[0] == "cpu":
            yield lambda: None
            return
        with self._lock:
            self._n_started += 1
            ours = self._n_started
            alone = not any(self._running[device] for device in devices)
            self._running.update(devices)
        get_peak = self._begin(devices, on_host=on_host, alone=alone)
        try:
            yield lambda: get_peak() if alone and self._n_started == ours else None
        finally:
            with self._lock:
                self._running.subtract(devices)

    def _begin(self, devices: Sequence[str], *, on_host: bool, alone: bool) -> GetPeak:
        if on_host:
            return self._host_peak if self._forked_bytes is not None and _reset() else lambda: None
        import torch

        torch.cuda.empty_cache()  # what earlier trials left would look taken to admission
        if alone:
            for device in devices:
                torch.cuda.reset_peak_memory_stats(device)
        return lambda: largest_peak(list(map(_cuda_peak, devices)))

    def _host_peak(self) -> DeviceMemoryPeak:
        # As VmHWM, but 25 times as fast, and a process that was never replaced starts at 0.
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return DeviceMemoryPeak(max(0, peak_bytes - (self._forked_bytes or 0)))


class PeakReporter:
    """Tells a trial's peak, or a pack's: with its first report of the study's metric, whenever it
    grew by 5 %, and at the end. Without arguments it tells nothing."""

    def __init__(
        self, get_peak: GetPeak = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._get_peak, self._clock = get_peak, clock
        self._told = DeviceMemoryPeak(0)
        self._look_at = -float("inf")

    def grown(self, trial: int, n_lanes: int = 1) -> Iterator[MemoryPeakMeasured]:
        """Where it is due; looks seldom enough to cost reports nothing."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            yield from self._if_above(GROWTH, trial, n_lanes)

    def last(self, trial: int, n_lanes: int = 1) -> Iterator[MemoryPeakMeasured]:
        """At the end, where it is more than was told."""
        return self._if_above(1.0, trial, n_lanes)

    def _if_above(self, factor: float, trial: int, n_lanes: int) -> Iterator[MemoryPeakMeasured]:
        peak = self._get_peak()
        if peak is not None and peak.exceeds(self._told, factor):
            self._told = peak
            yield MemoryPeakMeasured(
                trial,
                time.time(),
                peak.held_bytes,
                n_lanes,
                peak.allocated_bytes,
                on_each_bytes=peak.on_each_bytes,
            )


def largest_peak(peaks: Sequence[DeviceMemoryPeak]) -> DeviceMemoryPeak:
    """Of a trial with a device or several: the largest, which says what was held of each."""
    if len(peaks) == 1:
        return peaks[0]
    return max(peaks)._replace(on_each_bytes=tuple(peak.held_bytes for peak in peaks))


def _cuda_peak(device: str) -> DeviceMemoryPeak:
    import torch

    return DeviceMemoryPeak(
        torch.cuda.max_memory_reserved(device), torch.cuda.max_memory_allocated(device)
    )


def _forked_bytes() -> int | None:
    """What the fork brought of the server's memory; None: this is no worker, whose memory grows
    with its trials alone."""
    if multiprocessing.parent_process() is None or not sys.platform.startswith("linux"):
        return None
    try:
        status = Path(f"/proc/{os.getppid()}/status").read_text()
    except OSError:
        return None
    shared = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return None if shared is None else 1024 * int(shared[1])


def _reset() -> bool:
    """Let the kernel count this process's peak anew; whether it does."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _set_fraction(share: float, device: int) -> None:
    import torch  # whoever has a GPU to be capped has loaded it

    torch.cuda.set_per_process_memory_fraction(share, device)


def _total_bytes(device: int) -> int:
    import torch

    total: int = torch.cuda.get_device_properties(device).total_memory
    return total


class MemoryCaps:
    """torch's own limit per device: whoever meets it gets torch's out-of-memory error."""

    def __init__(
        self,
        set_fraction: Callable[[float, int], None] = _set_fraction,
        total_bytes: Callable[[int], int] = _total_bytes,
    ) -> None:
        self._set_fraction, self._total_bytes = set_fraction, total_bytes
        self._set: dict[int, int] = {}

    def apply(self, caps_bytes: Sequence[int]) -> None:
        """By device, in their order; 0: no cap. What is set already costs nothing."""
        for device, cap in enumerate(caps_bytes):
            if cap != self._set.get(device, 0):
                share = cap / self._total_bytes(device) if cap else 1.0
                self._set_fraction(min(1.0, share), device)
                self._set[device] = cap
