"""Measures the GPU memory of programs as objectives, whose memory no torch of ours counts.

The figures are the driver's bytes of their processes. If the driver tells none of any process, it
is the memory that the device has lost since the program began, provided that no other trial of ours
is on the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import DeviceId, MemoryPeakMeasured, Placement, ProcessHosted, ProcessId

GROWTH = 1.05
"""Factor by which a peak has to grow to be told again."""


@dataclass
class _MeasuredProgram:
    """A running program and what is known of its memory."""

    trial: int
    process: ProcessId
    """The worker that started the program. The driver's reader counts the program to it."""
    placement: Placement
    tell: Callable[[MemoryPeakMeasured], None]
    free_before: dict[DeviceId, int] = field(default_factory=dict)
    told_bytes: tuple[int, ...] = ()


class ProgramPeaks:
    """Takes the peaks of running programs from each reading. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while a peak is told, so that none follows `end`
        self._programs: dict[int, _MeasuredProgram] = {}
        self._last: DeviceReading | None = None

    def begin(
        self,
        key: int,
        hosted: ProcessHosted,
        placement: Placement,
        tell: Callable[[MemoryPeakMeasured], None],
    ) -> None:
        """Measure the program of an execution, which is about to start. `tell` takes each new
        peak."""
        with self._lock:
            free = {} if self._last is None else _free(self._last)
            self._programs[key] = _MeasuredProgram(
                hosted.trial, hosted.process, placement, tell, free
            )

    def end(self, key: int) -> None:
        """Stop measuring the program of an execution, if it had begun."""
        with self._lock:
            self._programs.pop(key, None)

    def read(self, reading: DeviceReading) -> None:
        """Tell the peaks that have grown. Raises the errors of `tell`."""
        with self._lock:
            self._last = reading
            snapshots = {device.address: device for device in reading.devices}
            for program in self._programs.values():
                others = [other for other in self._programs.values() if other is not program]
                sizes = tuple(
                    _held(program, snapshots.get(device), others)
                    for device in program.placement.devices
                )
                if _exceeds(sizes, program.told_bytes):
                    program.told_bytes = sizes
                    program.tell(_peak(program.trial, sizes))


def _held(
    program: _MeasuredProgram, device: DeviceSnapshot | None, others: Iterable[_MeasuredProgram]
) -> int:
    """Return the bytes that the program holds on one device, or 0 if unknown."""
    if device is None:
        return 0
    here = device.address
    if any(process.used_bytes is not None for process in device.processes):
        return sum(
            process.used_bytes or 0
            for process in device.processes
            if ProcessId(here.node, process.owner) == program.process
        )
    if any(here in other.placement.devices for other in others):
        return 0
    return max(0, program.free_before.get(here, device.free_bytes) - device.free_bytes)


def _free(reading: DeviceReading) -> dict[DeviceId, int]:
    return {device.address: device.free_bytes for device in reading.devices}


def _exceeds(sizes: tuple[int, ...], told: tuple[int, ...]) -> bool:
    before = told or (0,) * len(sizes)
    return any(new > GROWTH * old for new, old in zip(sizes, before, strict=True))


def _peak(trial: int, sizes: tuple[int, ...]) -> MemoryPeakMeasured:
    on_each = sizes if len(sizes) > 1 else ()
    return MemoryPeakMeasured(trial, time.time(), max(sizes), on_each_bytes=on_each)
