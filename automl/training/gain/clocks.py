"""When the device has done what it was told: of the host the time, of a GPU an event in its stream.

Waiting for a GPU after each step would time another training than the one that will run: steps are
told ahead there. The events are read when all is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

MarkT = TypeVar("MarkT")

_N_AHEAD = 8
"""Steps that a GPU may be behind: deciding when to stop needs to know about where it is."""


class Clock(Protocol[MarkT]):
    """For one execution."""

    def mark(self) -> MarkT:
        """The moment at which the device will have done all that it was told so far."""

    def finish(self) -> MarkT:
        """The same, and wait for it."""

    def reader(self) -> Callable[[MarkT], float]:
        """Turns marks into seconds, all on one scale. After `finish`."""


class HostClock:
    """Nothing is told ahead: it has been done."""

    def mark(self) -> float:
        return time.perf_counter()

    finish = mark

    def reader(self) -> Callable[[float], float]:
        return lambda mark: mark


class CudaClock:
    """Events of the current stream (CUDA C++ Programming Guide, Events); never ran so far."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._begun: torch.cuda.Event | None = None
        self._recent: deque[torch.cuda.Event] = deque()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        if self._begun is None:
            self._begun = event
        self._recent.append(event)
        if len(self._recent) > _N_AHEAD:
            self._recent.popleft().synchronize()
        return event

    def finish(self) -> torch.cuda.Event:
        event = self.mark()
        torch.cuda.synchronize(self._device)
        return event

    def reader(self) -> Callable[[torch.cuda.Event], float]:
        begun = self._begun
        assert begun is not None, "nothing was marked"

        def seconds(event: torch.cuda.Event) -> float:
            milliseconds: float = begun.elapsed_time(event)
            return milliseconds / 1000

        return seconds


def clock_of(device: str) -> Clock[object]:
    """For `cpu`, or `cuda:0`."""
    clock: Clock[object] = HostClock() if device == "cpu" else CudaClock(device)  # type: ignore[assignment]
    return clock
